package lua

import (
	"fmt"
	"strings"

	glua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// Script is a compiled script. It is immutable and may run in many calls at once.
type Script struct {
	name     string
	function string
	proto    *glua.FunctionProto
}

// Name returns the name errors of the script carry.
func (s *Script) Name() string { return s.name }

// Compile turns source into a script whose calls run the given global function. The name appears in errors, with
// the line where one is known.
func Compile(name, function, source string) (script *Script, err error) {
	if len(source) > maxScriptBytes {
		return nil, fmt.Errorf("%s: the script has %d bytes, more than the %d allowed", name, len(source), maxScriptBytes)
	}
	// The compiler reports most errors by panicking and knows only some of its own panics.
	defer func() {
		if r := recover(); r != nil {
			script, err = nil, fmt.Errorf("%s: the script does not compile: %v", name, r)
		}
	}()
	chunk, err := parse.Parse(strings.NewReader(source), name)
	if err != nil {
		return nil, fmt.Errorf("the script does not compile: %s", tidy(err.Error()))
	}
	if err := guard(chunk); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	proto, err := glua.Compile(chunk, name)
	if err != nil {
		return nil, fmt.Errorf("the script does not compile: %s", tidy(err.Error()))
	}
	return &Script{name: name, function: function, proto: proto}, nil
}

// tidy brings the messages of the Lua library, which may span lines, into one.
func tidy(message string) string {
	message, _, _ = strings.Cut(message, "\nstack traceback:")
	return strings.Join(strings.Fields(message), " ")
}
