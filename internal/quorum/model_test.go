package quorum

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/slots"
)

// model is a federation: voters with floors, gateways with clocks of their own, and a hub manager that fails cells over. Messages are
// delayed, lost and reordered at will, which covers every partition; gateways run only when they are drawn, which covers every pause.
type model struct {
	t *rapid.T
	// now is the true time in milliseconds.
	now      float64
	floors   map[string]int64
	history  []generation // by epoch, from 1
	pending  map[string]bool
	gateways []*gatewayModel
	// messages are reads of floors on their way.
	messages []*messageModel
	// promoted is, by cell, each epoch at which its share was taken over.
	promoted map[string][]int64
	// The hub manager: which voters have the floor of the last epoch, since when by its own clock the wait runs, and whether the last
	// epoch is in force.
	raised  map[string]bool
	waiting float64 // 0: not yet
	inForce bool
	voters  []string // the cells of the last topology in force
	rate    float64
	names   int

	// wait and quorate are the rules under test.
	wait    time.Duration
	quorate func([]slots.Cell, []string, []string, func(string) bool) bool
}

type generation []slots.Cell

type gatewayModel struct {
	lease Lease
	rate  float64
	known int64 // the highest epoch that it has learnt
	// suspends means that its machine is suspended at times. Otherwise its wall clock is set at times; set is by how many milliseconds in all.
	suspends bool
	set      float64
	// slept is for how many milliseconds of the true time it was suspended.
	slept float64
}

type messageModel struct {
	gateway  *gatewayModel
	voter    string
	sent     Instant
	answered bool
	floor    int64
}

const modelLength = 300 * time.Millisecond

func (g *gatewayModel) clock(m *model) Instant {
	milliseconds := func(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
	return Instant{Monotonic: milliseconds((m.now - g.slept) * g.rate), Wall: time.Unix(0, 0).Add(milliseconds(m.now*g.rate + g.set))}
}

// setClock sets the wall clock of a gateway.
func (m *model) setClock() {
	if g := m.gateway(); !g.suspends {
		g.set += float64(rapid.SampledFrom([]int{-1 << 40, -400, -100, 100, 400, 1 << 40}).Draw(m.t, "ms"))
	}
}

// suspend suspends the machine of a gateway.
func (m *model) suspend() {
	if g := m.gateway(); g.suspends {
		ms := float64(rapid.IntRange(1, 1000).Draw(m.t, "ms"))
		m.now, g.slept = m.now+ms, g.slept+ms
	}
}

func newModel(t *rapid.T) *model {
	m := &model{t: t, floors: map[string]int64{Hub: 0}, pending: map[string]bool{}, promoted: map[string][]int64{}, wait: Wait(modelLength), quorate: Raised}
	rates := rapid.Float64Range(0.95, 1.05)
	m.rate = rates.Draw(t, "rate of the hub manager")
	for range rapid.IntRange(1, 2).Draw(t, "gateways") {
		m.gateways = append(m.gateways, &gatewayModel{rate: rates.Draw(t, "rate"), known: 1, suspends: rapid.Bool().Draw(t, "suspends")})
	}
	var first generation
	for range rapid.IntRange(1, 4).Draw(t, "cells") {
		first = append(first, slots.Cell{Name: m.name(), State: slots.Normal})
	}
	m.edit(first)
	for voter := range m.floors {
		m.floors[voter] = 1
	}
	m.raised = map[string]bool{}
	m.putInForce()
	return m
}

func (m *model) name() string {
	m.names++
	name := fmt.Sprintf("c%d", m.names)
	m.floors[name] = 0
	return name
}

func (m *model) epoch() int64        { return int64(len(m.history)) }
func (m *model) current() generation { return m.history[len(m.history)-1] }

// edit stores a new topology.
func (m *model) edit(next generation) {
	m.history = append(m.history, next)
	m.raised, m.waiting, m.inForce = map[string]bool{}, 0, false
}

// changed returns the present topology with one cell in another state.
func (m *model) changed(name string, state slots.State) generation {
	next := slices.Clone(m.current())
	for i := range next {
		if next[i].Name == name {
			next[i].State = state
		}
	}
	return next
}

// having returns the cells in one of some states.
func (m *model) having(states ...slots.State) []string {
	var found []string
	for _, cell := range m.current() {
		if slices.Contains(states, cell.State) {
			found = append(found, cell.Name)
		}
	}
	return found
}

// drawn returns one of several, "" if there are none.
func (m *model) drawn(label string, from []string) string {
	if len(from) == 0 {
		return ""
	}
	return rapid.SampledFrom(from).Draw(m.t, label)
}

func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"time passes":        func(t *rapid.T) { m.now += float64(rapid.IntRange(1, 150).Draw(t, "ms")) },
		"a clock is set":     func(*rapid.T) { m.setClock() },
		"a gateway sleeps":   func(*rapid.T) { m.suspend() },
		"a read is sent":     func(*rapid.T) { m.send() },
		"reads are sent":     func(*rapid.T) { m.sendAll() },
		"a read is executed": func(*rapid.T) { m.execute() },
		"an answer arrives":  func(*rapid.T) { m.receive() },
		"a gateway learns":   func(*rapid.T) { m.learn() },
		"a cell joins":       func(*rapid.T) { m.join() },
		"a cell leaves":      func(*rapid.T) { m.leave() },
		"the change ends":    func(*rapid.T) { m.end() },
		"the change turns":   func(*rapid.T) { m.reverse() },
		"a cell fails":       func(*rapid.T) { m.fail() },
		"a cell returns":     func(*rapid.T) { m.rejoin() },
		"a floor is raised":  func(*rapid.T) { m.raise() },
		"a whole failover":   func(*rapid.T) { m.failOver() },
		"floors are raised":  func(*rapid.T) { m.raiseAll() },
		"the manager goes on": func(*rapid.T) {
			m.promote()
		},
		"": func(*rapid.T) { m.acknowledge() },
	}
}

func (m *model) gateway() *gatewayModel {
	return m.gateways[rapid.IntRange(0, len(m.gateways)-1).Draw(m.t, "gateway")]
}

func (m *model) send() {
	g := m.gateway()
	voter := rapid.SampledFrom(slices.Sorted(maps.Keys(m.floors))).Draw(m.t, "voter")
	m.messages = append(m.messages, &messageModel{gateway: g, voter: voter, sent: g.clock(m)})
}

// sendAll has a gateway read some voters without any delay.
func (m *model) sendAll() {
	g := m.gateway()
	for _, voter := range slices.Sorted(maps.Keys(m.floors)) {
		if rapid.Bool().Draw(m.t, "reached") {
			g.lease.Confirm(voter, m.floors[voter], g.clock(m))
		}
	}
}

func (m *model) message(answered bool) *messageModel {
	var some []*messageModel
	for _, message := range m.messages {
		if message.answered == answered {
			some = append(some, message)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(m.t, "message")]
}

func (m *model) execute() {
	if message := m.message(false); message != nil {
		message.answered, message.floor = true, m.floors[message.voter]
	}
}

func (m *model) receive() {
	if message := m.message(true); message != nil {
		message.gateway.lease.Confirm(message.voter, message.floor, message.sent)
		m.messages = slices.DeleteFunc(m.messages, func(other *messageModel) bool { return other == message })
	}
}

func (m *model) learn() {
	g := m.gateway()
	g.known = rapid.Int64Range(g.known, m.epoch()).Draw(m.t, "epoch")
}

func (m *model) join() {
	if len(m.having(slots.In, slots.Out)) == 0 && len(m.current()) < 6 {
		m.edit(append(slices.Clone(m.current()), slots.Cell{Name: m.name(), State: slots.In}))
	}
}

func (m *model) leave() {
	normal := m.having(slots.Normal)
	if len(m.having(slots.In, slots.Out)) == 0 && len(normal) > 1 {
		m.edit(m.changed(m.drawn("leaves", normal), slots.Out))
	}
}

func (m *model) reverse() {
	for _, name := range m.having(slots.In) {
		m.edit(m.changed(name, slots.Out))
		return
	}
	for _, name := range m.having(slots.Out) {
		m.edit(m.changed(name, slots.In))
		return
	}
}

// end ends a change once its epoch is in force. The floor of a cell that leaves is raised first.
func (m *model) end() {
	if !m.inForce || len(m.having(slots.In, slots.Out)) == 0 {
		return
	}
	var next generation
	for _, cell := range m.current() {
		switch cell.State {
		case slots.Out:
			m.floors[cell.Name] = max(m.floors[cell.Name], m.epoch()+1)
			continue
		case slots.In:
			cell.State = slots.Normal
		}
		next = append(next, cell)
	}
	m.edit(next)
}

func (m *model) fail() {
	alive := m.having(slots.Normal, slots.In, slots.Out)
	if len(alive) < 2 {
		return
	}
	name := m.drawn("fails", alive)
	m.edit(m.changed(name, slots.Failed))
	m.pending[name] = true
}

// rejoin has a cell return whose share was taken over.
func (m *model) rejoin() {
	if !m.inForce || len(m.having(slots.In, slots.Out)) > 0 {
		return
	}
	if name := m.drawn("returns", m.having(slots.Failed)); name != "" {
		m.edit(m.changed(name, slots.In))
		m.floors[name] = m.epoch()
	}
}

// failOver has a gateway read some voters just before a cell fails and the hub manager takes over as fast as it may. Meanwhile the clock of
// a gateway may be set, or its machine may sleep.
func (m *model) failOver() {
	if rapid.Bool().Draw(m.t, "learns") {
		m.learn()
	}
	m.sendAll()
	m.fail()
	m.raiseAll()
	m.promote()
	m.setClock()
	m.suspend()
	m.promote()
}

// raise raises the floor of one voter that the hub manager reaches: any, also a failed cell.
func (m *model) raise() {
	voters := append(m.having(slots.Normal, slots.In, slots.Out), Hub)
	voters = append(voters, slices.Sorted(maps.Keys(m.pending))...)
	m.raiseAt(rapid.SampledFrom(voters).Draw(m.t, "raised"))
}

// raiseAll raises the floors that are needed.
func (m *model) raiseAll() {
	for _, voter := range append(m.having(slots.Normal, slots.In, slots.Out), Hub) {
		m.raiseAt(voter)
	}
}

func (m *model) raiseAt(voter string) {
	m.floors[voter] = max(m.floors[voter], m.epoch())
	m.raised[voter] = true
}

// promote takes the next step of the hub manager: it begins to wait once the floors are raised, takes over after the wait, and puts the
// epoch in force.
func (m *model) promote() {
	for _, voter := range append(m.having(slots.Normal, slots.In, slots.Out), Hub) {
		if !m.raised[voter] {
			return
		}
	}
	pending := slices.Sorted(maps.Keys(m.pending))
	switch {
	case len(pending) == 0:
		m.putInForce()
	case !m.quorate(m.current(), m.voters, pending, func(cell string) bool { return m.raised[cell] }):
	case m.waiting == 0:
		m.waiting = m.now*m.rate + 1e-9
	default:
		// Nothing else happens until the wait is over; the drawn actions before this one may have taken a part of it.
		m.now = max(m.now, (m.waiting+float64(m.wait/time.Millisecond))/m.rate)
		for _, name := range pending {
			m.promoted[name] = append(m.promoted[name], m.epoch())
		}
		clear(m.pending)
		m.putInForce()
	}
}

// putInForce records the cells of the topology.
func (m *model) putInForce() {
	m.inForce, m.voters = true, m.having(slots.Normal, slots.In, slots.Out)
}

// acknowledge has each gateway acknowledge writes to all cells, by every topology that it knows, wherever it holds the lease.
func (m *model) acknowledge() {
	for _, g := range m.gateways {
		for epoch := int64(1); epoch <= g.known; epoch++ {
			topology := m.history[epoch-1]
			if !g.lease.Held(g.clock(m), modelLength, epoch, Voters(topology)) {
				continue
			}
			for _, cell := range topology {
				if cell.State == slots.Failed {
					continue
				}
				for _, promoted := range m.promoted[cell.Name] {
					if promoted > epoch {
						m.t.Fatalf("a write to cell %s by the topology of epoch %d is acknowledged after the promotion at epoch %d", cell.Name, epoch, promoted)
					}
				}
			}
		}
	}
}

// TestNothingIsAcknowledgedAfterPromotion runs the model: whatever is cut off, paused, delayed or reordered, with clocks that each run
// fast or slow by up to 5 %, wall clocks that are set by any amount, and machines that are suspended, no gateway acknowledges a write to a cell by a topology from before the promotion of that cell's copies.
func TestNothingIsAcknowledgedAfterPromotion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(m.actions())
	})
}
