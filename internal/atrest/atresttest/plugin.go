// Package atresttest has a KMS v2 plug-in and EncryptionConfigurations, for tests.
package atresttest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/kms/pkg/service"
)

// Plugin is a KMS v2 plug-in on a socket. It encrypts with AES-GCM, and the key encryption key can be replaced.
type Plugin struct {
	// Endpoint is its address in an EncryptionConfiguration.
	Endpoint string

	mu      sync.Mutex
	current int
	keys    map[string]cipher.AEAD
}

// StartPlugin starts a plug-in that ends with the test.
func StartPlugin(t testing.TB) *Plugin {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	p := &Plugin{Endpoint: "unix://" + socket, keys: map[string]cipher.AEAD{}}
	p.Rotate(t)
	server := service.NewGRPCService(socket, 5*time.Second, p)
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	for {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	t.Cleanup(func() {
		server.Close()
		<-ended
		_ = os.RemoveAll(dir)
	})
	return p
}

// Rotate has the plug-in use a new key. It keeps the others.
func (p *Plugin) Rotate(t testing.TB) {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it does not fail
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current++
	p.keys[p.id()] = gcm
}

func (p *Plugin) id() string { return fmt.Sprintf("kek-%d", p.current) }

// Encrypt implements service.Service.
func (p *Plugin) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &service.EncryptResponse{Ciphertext: p.keys[p.id()].Seal(nil, nil, data, nil), KeyID: p.id()}, nil
}

// Decrypt implements service.Service.
func (p *Plugin) Decrypt(_ context.Context, _ string, request *service.DecryptRequest) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := p.keys[request.KeyID]
	if key == nil {
		return nil, errors.New("the key is not known")
	}
	return key.Open(nil, nil, request.Ciphertext, nil)
}

// Status implements service.Service.
func (p *Plugin) Status(context.Context) (*service.StatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: p.id()}, nil
}
