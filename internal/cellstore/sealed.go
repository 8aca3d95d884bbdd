package cellstore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// SealedSuffix is that of files with an encrypted object.
const SealedSuffix = ".sealed.json"

// Sealed is an object in a file, encrypted as its cell has stored it.
type Sealed struct {
	// Cell has stored it.
	Cell string `json:"cell"`
	// Key is its key without the prefix of the store.
	Key string `json:"key"`
	// Stored is the value.
	Stored []byte `json:"stored"`
}

// WriteFile writes the file, which only its owner can read.
func (s Sealed) WriteFile(file string) error {
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// ReadSealed reads a file.
func ReadSealed(file string) (Sealed, error) {
	var s Sealed
	content, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(content, &s); err != nil || s.Cell == "" || s.Key == "" || len(s.Stored) == 0 {
		return s, fmt.Errorf("%s is not a file with an encrypted object", file)
	}
	return s, nil
}

// Unseal decrypts an object that this cell has encrypted.
func (s *Store) Unseal(ctx context.Context, sealed Sealed) ([]byte, error) {
	plain, _, err := s.keys.Open(ctx, s.Key(sealed.Key), sealed.Key, sealed.Stored)
	return plain, err
}

// AsYAML returns a decrypted object as YAML. It fails for protobuf of a kind that is not known.
func AsYAML(value []byte) ([]byte, error) {
	if len(value) > 0 && value[0] == '{' {
		return yaml.JSONToYAML(value)
	}
	object, err := runtime.Decode(protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme), value)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(text)
}
