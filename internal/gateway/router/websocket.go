package router

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/cellplane/cellplane/internal/splice"
)

// serveWatch serves a watch over cells, over HTTP or a WebSocket.
func (rt *Router) serveWatch(w http.ResponseWriter, r *http.Request, c *call) {
	ServeWatch(w, r, func(w http.ResponseWriter, r *http.Request) { rt.watch(w, r, c) })
}

// ServeWatch serves a watch over HTTP, or over a WebSocket if the client asks for one. serve has to write whole events.
func ServeWatch(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request)) {
	if !wsstream.IsWebSocketRequest(r) {
		serve(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	plain := r.Clone(ctx)
	for key := range plain.Header {
		if key == "Upgrade" || key == "Connection" || strings.HasPrefix(key, "Sec-Websocket-") {
			delete(plain.Header, key)
		}
	}
	socket := &socketWriter{plain: w, r: r, gone: cancel, header: http.Header{}}
	defer socket.close()
	serve(socket, plain)
}

// socketWriter writes a watch to a WebSocket, one message per event. It upgrades the connection when the watch begins; errors before that
// are plain HTTP answers.
type socketWriter struct {
	plain  http.ResponseWriter
	r      *http.Request
	gone   context.CancelFunc // called when the client disconnects
	header http.Header

	began  bool
	socket *websocket.Conn
	done   chan struct{} // closed to end the socket
	ended  chan struct{} // closed when it has ended
}

var errNoSocket = errors.New("the WebSocket handshake failed")

// Header implements http.ResponseWriter.
func (s *socketWriter) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *socketWriter) WriteHeader(code int) {
	if s.began {
		return
	}
	s.began = true
	header := s.plain.Header()
	for key, values := range s.header {
		header[key] = values
	}
	if code != http.StatusOK {
		s.plain.WriteHeader(code)
		return
	}
	s.open()
}

// open performs the handshake. If that fails, the client has got an answer.
func (s *socketWriter) open() {
	opened := make(chan *websocket.Conn)
	s.done, s.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.ended)
		// The same handler as in an API server.
		websocket.Handler(func(socket *websocket.Conn) {
			opened <- socket
			<-s.done
		}).ServeHTTP(s.plain, s.r)
	}()
	select {
	case s.socket = <-opened:
		go func() {
			wsstream.IgnoreReceives(s.socket, 0)
			s.gone()
		}()
	case <-s.ended:
		s.gone()
	}
}

// Write writes whole events.
func (s *socketWriter) Write(b []byte) (int, error) {
	if !s.began {
		s.WriteHeader(http.StatusOK)
	}
	if s.ended == nil {
		return s.plain.Write(b)
	}
	if s.socket == nil {
		return 0, errNoSocket
	}
	binaryFrames := strings.HasPrefix(s.header.Get("Content-Type"), splice.ProtobufContentType)
	for rest := b; len(rest) > 0; {
		var event []byte
		if binaryFrames {
			event, rest = cutFrame(rest)
		} else {
			event, rest, _ = bytes.Cut(rest, []byte("\n"))
		}
		if err := s.send(event, binaryFrames); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (s *socketWriter) send(event []byte, binaryFrames bool) error {
	if binaryFrames {
		return websocket.Message.Send(s.socket, event)
	}
	return websocket.Message.Send(s.socket, string(event)+"\n") // a string is sent as a text frame
}

// cutFrame splits off the first event of a stream of length-prefixed events.
func cutFrame(b []byte) (event, rest []byte) {
	const header = 4
	if len(b) < header {
		return b, nil
	}
	length := uint64(binary.BigEndian.Uint32(b))
	b = b[header:]
	if length > uint64(len(b)) {
		return b, nil
	}
	return b[:length], b[length:]
}

// FlushError flushes a plain answer. Messages of a WebSocket are sent when they are written.
func (s *socketWriter) FlushError() error {
	if s.ended == nil {
		return http.NewResponseController(s.plain).Flush()
	}
	return nil
}

// close ends the socket and waits until its handler has returned.
func (s *socketWriter) close() {
	if s.ended == nil {
		return
	}
	close(s.done)
	<-s.ended
}

var _ io.Writer = (*socketWriter)(nil)
