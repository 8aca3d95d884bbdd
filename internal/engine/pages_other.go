//go:build !linux

package engine

// dropProgramPages leaves it to other systems what they keep of a program.
func dropProgramPages() error { return nil }
