package limits

import "sync"

// Streams counts the long-running requests of each owner.
type Streams struct {
	most int

	mu   sync.Mutex
	open map[string]int
}

// NewStreams returns a count with a bound per owner; 0 means none.
func NewStreams(most int) *Streams { return &Streams{most: most, open: map[string]int{}} }

// Open counts a request, unless its owner has as many as the bound. close must be called when the request ends; further calls do nothing.
func (s *Streams) Open(owner Owner) (end func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > 0 && !owner.Exempt && s.open[owner.Name] >= s.most {
		return nil, false
	}
	s.open[owner.Name]++
	return sync.OnceFunc(func() { s.end(owner.Name) }), true
}

func (s *Streams) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[name]--; s.open[name] <= 0 {
		delete(s.open, name) // the owners of a gateway come and go
	}
}

// Of returns the number of an owner's requests.
func (s *Streams) Of(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[name]
}

// Owners returns the number of owners with requests.
func (s *Streams) Owners() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}
