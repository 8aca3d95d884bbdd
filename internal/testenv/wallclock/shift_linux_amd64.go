package wallclock

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Supported tells whether Shift works on this machine.
const Supported = true

// shifted is clock_gettime(clock, *timespec) with an offset. It uses no stack.
var shifted = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x75, 0x0e, // jnz end: the system call has failed
	0x85, 0xff, // test edi, edi
	0x75, 0x0a, // jnz end: it is not CLOCK_REALTIME, which is 0
	0x48, 0x8b, 0x0d, offsetAt - 22, 0x00, 0x00, 0x00, // mov rcx, [rip + offset]
	0x48, 0x01, 0x0e, // add [rsi], rcx: the seconds
	0xc3, // end: ret
}

const (
	// offsetAt is where the offset is behind the beginning of the function, in seconds.
	offsetAt = 40
	// size is that of function and offset.
	size = 48
	// stopWithin bounds the time until all threads of a process have stopped.
	stopWithin = 10 * time.Second
)

// Shift lets the wall clock of a Go program differ by an offset from that of the machine, in whole seconds, until it ends. It stops the
// process for a moment, so nobody else may stop or continue it meanwhile. The error is os.ErrProcessDone if it has ended.
func Shift(pid int, offset time.Duration) (err error) {
	if offset%time.Second != 0 {
		return fmt.Errorf("a wall clock can be shifted by whole seconds, not by %v", offset)
	}
	defer func() {
		if err == nil {
			return
		}
		if hasEnded(pid) {
			err = os.ErrProcessDone
		}
		err = fmt.Errorf("shifting the wall clock of process %d by %v: %w", pid, offset, err)
	}()
	memory, err := os.OpenFile(filepath.Join("/proc", strconv.Itoa(pid), "mem"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	p := &program{pid: pid, memory: memory}
	if err := p.readMaps(); err != nil {
		return err
	}
	if err := p.readVDSO(); err != nil || (p.isNew() && offset == 0) {
		return err
	}
	if err := p.stop(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)) }()
	return p.shift(offset)
}

// program is the memory of a process.
type program struct {
	pid    int
	memory *os.File
	vdso   region
	// code is the content of the vDSO.
	code []byte
	// variables are those of the program. The ones without a value in its file follow the others.
	variables []region
}

type region struct{ from, to uint64 }

func (r region) read(memory *os.File) ([]byte, error) {
	content := make([]byte, r.to-r.from)
	_, err := memory.ReadAt(content, int64(r.from)) //nolint:gosec // user addresses are below 1<<47
	return content, err
}

// readMaps finds the vDSO and the variables.
func (p *program) readMaps() error {
	dir := filepath.Join("/proc", strconv.Itoa(p.pid))
	executable, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return err
	}
	file, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		// address rights offset device inode path
		fields := strings.Fields(lines.Text())
		var r region
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &r.from, &r.to); err != nil {
			return fmt.Errorf("reading %q: %w", lines.Text(), err)
		}
		path, writable := strings.Join(fields[5:], " "), fields[1] == "rw-p"
		last := len(p.variables) - 1
		switch {
		case path == "[vdso]":
			p.vdso = r
		case path == executable && writable, path == "" && writable && last >= 0 && p.variables[last].to == r.from:
			p.variables = append(p.variables, r)
		}
	}
	if p.vdso.to == 0 {
		return errors.New("it has no vDSO")
	}
	return nil
}

// stop stops all threads.
func (p *program) stop() error {
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		return err
	}
	deadline := time.Now().Add(stopWithin)
	for {
		stopped, err := p.stopped()
		if err != nil {
			return err
		}
		if stopped || hasEnded(p.pid) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("it has not stopped within %v", stopWithin), syscall.Kill(p.pid, syscall.SIGCONT))
		}
		time.Sleep(time.Millisecond) // nothing tells when the last thread has stopped
	}
}

func (p *program) stopped() (bool, error) {
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.pid), "task", "*", "stat"))
	if err != nil {
		return false, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return false, err
		}
		if state(text) != 'T' {
			return false, nil
		}
	}
	return len(files) > 0, nil
}

// readVDSO reads the content of the vDSO.
func (p *program) readVDSO() (err error) {
	if p.code, err = p.vdso.read(p.memory); err != nil {
		return fmt.Errorf("reading its vDSO: %w", err)
	}
	return nil
}

// room returns what is where the function belongs.
func (p *program) room() []byte { return p.code[len(p.code)-size:] }

// isNew reports whether the function is not there yet.
func (p *program) isNew() bool { return !bytes.HasPrefix(p.room(), shifted) }

// shift writes the offset, and the function if it is not there yet.
func (p *program) shift(offset time.Duration) error {
	if p.isNew() && slices.ContainsFunc(p.room(), func(b byte) bool { return b != 0 }) {
		return errors.New("its vDSO has no room for a function")
	}
	at, function := p.vdso.to-size, make([]byte, size)
	copy(function, shifted)
	binary.LittleEndian.PutUint64(function[offsetAt:], uint64(offset/time.Second)) //nolint:gosec // the sum wraps as it should
	if _, err := p.memory.WriteAt(function, int64(at)); err != nil {               //nolint:gosec // user addresses are below 1<<47
		return fmt.Errorf("writing to its vDSO: %w", err)
	}
	if !p.isNew() {
		return nil
	}
	original, err := p.original()
	if err != nil {
		return err
	}
	return p.replace(original, at)
}

// hasEnded reports whether a process has ended, even if its parent does not know yet.
func hasEnded(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || state(text) == 'Z' || state(text) == 'X'
}

// state returns the state in a line of /proc, which is number (name) state …, where the name may contain anything.
func state(line []byte) byte {
	_, rest, found := bytes.Cut(line[bytes.LastIndexByte(line, ')')+1:], []byte(" "))
	if !found || len(rest) == 0 {
		return 'X'
	}
	return rest[0]
}

// original returns the address of the kernel's function.
func (p *program) original() (uint64, error) {
	file, err := elf.NewFile(bytes.NewReader(p.code))
	if err != nil {
		return 0, fmt.Errorf("reading its vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("reading its vDSO: %w", err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" })
	if i < 0 {
		return 0, errors.New("its vDSO has no function clock_gettime")
	}
	return p.vdso.from + symbols[i].Value, nil
}

// replace replaces the variable in which the Go runtime has the address of the function.
func (p *program) replace(original, function uint64) error {
	var found []uint64
	for _, r := range p.variables {
		content, err := r.read(p.memory)
		if err != nil {
			return fmt.Errorf("reading its variables: %w", err)
		}
		for i := 0; i+8 <= len(content); i += 8 {
			if binary.LittleEndian.Uint64(content[i:]) == original {
				found = append(found, r.from+uint64(i)) //nolint:gosec // it is not negative
			}
		}
	}
	if len(found) != 1 {
		return fmt.Errorf("%d of its variables have the address of clock_gettime, instead of one: is it a Go program?", len(found))
	}
	if _, err := p.memory.WriteAt(binary.LittleEndian.AppendUint64(nil, function), int64(found[0])); err != nil { //nolint:gosec // as above
		return fmt.Errorf("writing its variable: %w", err)
	}
	return nil
}
