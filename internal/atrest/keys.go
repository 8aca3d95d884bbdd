package atrest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// Keys encrypts and decrypts the values of one store. A nil Keys is that of a store that is not encrypted.
type Keys struct {
	// name says whose keys they are and where they are from, for messages.
	name  string
	given *apiserverv1.EncryptionConfiguration
	probe Probe
	// asking is held while an API server is asked, so that concurrent writes ask once.
	asking sync.Mutex

	mu     sync.Mutex
	closed bool
	// config is the one given, with the writers of the API servers.
	config *apiserverv1.EncryptionConfiguration
	loaded *transformers // nil until the first use
	// changes counts changes of the config.
	changes int
	// proven is when an API server has last been seen to use the writer of a list.
	proven map[int]time.Time
}

// New returns the keys in an EncryptionConfiguration. The name says where it is from.
func New(name string, text []byte) (*Keys, error) {
	config, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the EncryptionConfiguration in %s cannot be read: %w", ErrKeys, name, err)
	}
	return &Keys{name: name, given: config, config: config, proven: map[int]time.Time{}}, nil
}

// Close ends connections to KMS plug-ins.
func (k *Keys) Close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.loaded != nil {
		k.loaded.close()
		k.loaded = nil
	}
}

var errClosed = errors.New("the keys are no longer in use, because the Cell or its Secret has changed")

// use returns the configuration and its transformers. The caller holds the lock.
func (k *Keys) use() (*transformers, error) {
	switch {
	case k.closed:
		return nil, errClosed
	case k.loaded != nil:
		return k.loaded, nil
	}
	loaded, err := load(k.config)
	if err != nil {
		return nil, fmt.Errorf("%w: the EncryptionConfiguration in %s is not valid: %w", ErrKeys, k.name, err)
	}
	k.loaded = loaded
	return loaded, nil
}

func (k *Keys) current() (*apiserverv1.EncryptionConfiguration, *transformers, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	loaded, err := k.use()
	return k.config, loaded, err
}

// IsEncrypted reports whether a value is encrypted.
func IsEncrypted(stored []byte) bool { return bytes.HasPrefix(stored, []byte(encryptedPrefix)) }

// Open decrypts what is stored under a key. The relative key, without any prefix, tells the resource. The value is outdated if it is not
// written with the key that is in use.
func (k *Keys) Open(ctx context.Context, key, relative string, stored []byte) (plain []byte, outdated bool, err error) {
	switch encrypted := IsEncrypted(stored); {
	case k == nil && encrypted:
		return nil, false, fmt.Errorf("%w: %s is %s, and spec.etcd.encryption of the Cell names no keys", ErrKeys, relative, describe(stored))
	case k == nil:
		return stored, false, nil
	}
	config, loaded, err := k.current()
	if err != nil {
		return nil, false, err
	}
	resource, known := ResourceOf(relative)
	if !IsEncrypted(stored) {
		list := listOf(config, resource)
		return stored, known && list != none && prefixOf(&config.Resources[list]) != "", nil
	}
	if known {
		plain, outdated, err = loaded.TransformerForResource(resource).TransformFromStorage(ctx, stored, value.DefaultContext(key))
	} else {
		plain, outdated, err = k.openAny(ctx, loaded, key, stored)
	}
	if err == nil && !isObject(plain) {
		err = errors.New("the result is no object") // AES-CBC does not always notice a wrong key
	}
	if err != nil {
		return nil, false, k.cannotOpen(relative, stored, err)
	}
	return plain, outdated, nil
}

// openAny decrypts a value whose resource is not known, such as a range of addresses.
func (k *Keys) openAny(ctx context.Context, loaded *transformers, key string, stored []byte) (plain []byte, outdated bool, err error) {
	err = errors.New("no list of resources has its key")
	for _, transformer := range loaded.StaticTransformers {
		plain, outdated, failed := transformer.TransformFromStorage(ctx, stored, value.DefaultContext(key))
		if failed == nil && isObject(plain) {
			return plain, outdated, nil
		}
		err = failed
	}
	return nil, false, err
}

func isObject(plain []byte) bool {
	return bytes.HasPrefix(plain, []byte(objbytes.ProtobufPrefix)) || objbytes.IsObject(plain)
}

func (k *Keys) cannotOpen(relative string, stored []byte, err error) error {
	return fmt.Errorf("%w: %s cannot be decrypted with the keys in %s: it is %s (%w)", ErrKeys, relative, k.name, describe(stored), err)
}

// Seal encrypts a value to be stored under a key. If API servers read the key, one of them has been seen to use the same writer.
func (k *Keys) Seal(ctx context.Context, key, relative string, plain []byte, served bool) ([]byte, error) {
	if k == nil {
		return plain, nil
	}
	resource, known := ResourceOf(relative)
	if !known {
		return nil, fmt.Errorf("%w: the resource of %s is not known, so that it cannot be told how to encrypt it", ErrKeys, relative)
	}
	if served {
		if err := k.prove(ctx, resource); err != nil {
			return nil, err
		}
	}
	_, loaded, err := k.current()
	if err != nil {
		return nil, err
	}
	sealed, err := loaded.TransformerForResource(resource).TransformToStorage(ctx, plain, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("%w: %s cannot be encrypted with the keys in %s: %w", ErrKeys, relative, k.name, err)
	}
	return sealed, nil
}

// encrypts reports whether objects of a resource are written encrypted.
func (k *Keys) encrypts(resource schema.GroupResource) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	list := listOf(k.config, resource)
	return list != none && prefixOf(&k.config.Resources[list]) != ""
}

// Encrypts reports whether what is stored under a relative key is written encrypted.
func (k *Keys) Encrypts(relative string) bool {
	resource, known := ResourceOf(relative)
	return known && k.encrypts(resource)
}
