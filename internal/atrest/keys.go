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
	// missing is why there are no keys, although the cell has some.
	missing error
	probe   Probe
	now     func() time.Time
	// asking is held while an API server is asked, so that concurrent writes ask once, and loading while transformers are made. Both may
	// take long, so mu is not held meanwhile.
	asking, loading sync.Mutex

	mu     sync.Mutex
	closed bool
	// config is the one given, with the writers of the API servers.
	config *apiserverv1.EncryptionConfiguration
	loaded *transformers // nil until the first use
	// changes counts changes of the config.
	changes int
	// answers of the API servers, by list.
	answers map[int]answer
}

// New returns the keys in an EncryptionConfiguration. The name says where it is from.
func New(name string, text []byte) (*Keys, error) {
	config, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the EncryptionConfiguration in %s cannot be read: %w", ErrKeys, name, err)
	}
	return &Keys{name: name, given: config, config: config, now: time.Now, answers: map[int]answer{}}, nil
}

// Validate returns an error if an EncryptionConfiguration cannot be used. It needs no KMS plug-in. The name says where it is from.
func Validate(name string, text []byte) error {
	keys, err := New(name, text)
	if err != nil {
		return err
	}
	defer keys.Close()
	_, _, err = keys.current()
	return err
}

// Missing returns the keys of a cell whose keys are not known: everything that needs them fails with this error.
func Missing(err error) *Keys {
	none := &apiserverv1.EncryptionConfiguration{}
	return &Keys{missing: err, given: none, config: none, now: time.Now}
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

// current returns the configuration and its transformers.
func (k *Keys) current() (*apiserverv1.EncryptionConfiguration, *transformers, error) {
	config, loaded, err := k.inUse()
	if err != nil || loaded != nil {
		return config, loaded, err
	}
	k.loading.Lock()
	defer k.loading.Unlock()
	if config, loaded, err = k.inUse(); err != nil || loaded != nil {
		return config, loaded, err
	}
	if loaded, err = k.load(config); err != nil {
		return nil, nil, err
	}
	return config, loaded, k.use(config, loaded)
}

// inUse returns the configuration and its transformers, which are nil if they have not been made yet.
func (k *Keys) inUse() (*apiserverv1.EncryptionConfiguration, *transformers, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.missing != nil:
		return nil, nil, k.missing
	case k.closed:
		return nil, nil, errClosed
	}
	return k.config, k.loaded, nil
}

func (k *Keys) load(config *apiserverv1.EncryptionConfiguration) (*transformers, error) {
	loaded, err := load(config)
	if err != nil {
		return nil, fmt.Errorf("%w: the EncryptionConfiguration in %s is not valid: %w", ErrKeys, k.name, err)
	}
	return loaded, nil
}

// use replaces the configuration and its transformers.
func (k *Keys) use(config *apiserverv1.EncryptionConfiguration, loaded *transformers) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		loaded.close()
		return errClosed
	}
	if k.loaded != nil {
		k.loaded.close()
	}
	if k.config != config {
		k.changes++
	}
	k.config, k.loaded = config, loaded
	return nil
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
	if k.missing != nil {
		return nil, k.missing
	}
	resource, known := ResourceOf(relative)
	if !known {
		return nil, fmt.Errorf("%w: the resource of %s is not known, so that it cannot be told how to encrypt it", ErrKeys, relative)
	}
	if served {
		if err := k.prove(ctx, listOf(k.given, resource)); err != nil {
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

// mayEncrypt reports whether API servers may write objects of a resource encrypted. Before one of them has been asked, the order of the
// providers says nothing.
func (k *Keys) mayEncrypt(resource schema.GroupResource) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch list := listOf(k.config, resource); {
	case list == none:
		return false
	case k.answers[list].proven:
		return prefixOf(&k.config.Resources[list]) != ""
	default:
		return canEncrypt(&k.config.Resources[list])
	}
}

// Encrypts reports whether what is stored under a relative key is written encrypted.
func (k *Keys) Encrypts(relative string) bool {
	resource, known := ResourceOf(relative)
	return known && k.encrypts(resource)
}
