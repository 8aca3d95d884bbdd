package crds

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/cellplane/cellplane/api/names"
)

// Marker is the definition that tells the level of all definitions. It is installed last.
const Marker = "celltopologies.cellplane.io"

// A level stands for everything that parts store and send each other: the definitions, the topology, the fence, labels and annotations, Leases, backups.
// It grows by one with a release in which a part of the former level would misread some of that, or lose fields that its API server does not know.
const (
	// Level is that of this release.
	Level = 1
	// Serves is the lowest level of parts that go with what parts of this release store.
	Serves = 1
	// Needs is the lowest level of definitions that parts of this release go with.
	Needs = 1
)

// Judge returns why parts of this release must not work with a control plane whose Marker has these annotations, or nil.
func Judge(annotations map[string]string) error {
	installed, err := number(annotations, names.LevelAnnotation)
	if err != nil {
		return err
	}
	serves, err := number(annotations, names.ServesLevelAnnotation)
	switch {
	case err != nil:
		return err
	case installed < Needs:
		return fmt.Errorf("its CustomResourceDefinitions are of level %d, and this release needs level %d: install those of this release first", installed, Needs)
	case serves > Level:
		return fmt.Errorf("its CustomResourceDefinitions are of level %d, for parts of level %d and later, and this release has level %d: run a newer release", installed, serves, Level)
	default:
		return nil
	}
}

// LevelOf returns the level of definitions by the annotations of the Marker, 0 if there is none.
func LevelOf(annotations map[string]string) (int, error) {
	return number(annotations, names.LevelAnnotation)
}

func number(annotations map[string]string, name string) (int, error) {
	text := annotations[name]
	if text == "" {
		return 0, nil
	}
	level, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("the annotation %s of CustomResourceDefinition %s is %q, not a number", name, Marker, text)
	}
	return level, nil
}

// mark adds the level of this release to a definition.
func mark(definition []byte) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(definition, &object); err != nil {
		return nil, err
	}
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		return nil, fmt.Errorf("%s has no annotations", Marker)
	}
	annotations[names.LevelAnnotation], annotations[names.ServesLevelAnnotation] = strconv.Itoa(Level), strconv.Itoa(Serves)
	return json.Marshal(object)
}
