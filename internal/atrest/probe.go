package atrest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// Probe has an API server store an object of a resource, and returns its key and what is stored.
type Probe func(ctx context.Context, resource schema.GroupResource) (key string, stored []byte, err error)

// Probed are the resources of which a probe can be made. A list with none of them cannot be checked.
var Probed = []schema.GroupResource{{Resource: "configmaps"}, {Resource: "secrets"}, {Group: "coordination.k8s.io", Resource: "leases"}}

// provenFor is how long the answer to a probe counts. If there is no other it counts longer: keys change only while API servers run.
const provenFor = 20 * time.Second

// SetProbe sets how API servers are asked.
func (k *Keys) SetProbe(probe Probe) { k.probe = probe }

// prove makes sure that the writer of a resource is the one that the API servers use.
func (k *Keys) prove(ctx context.Context, resource schema.GroupResource) error {
	list := listOf(k.given, resource)
	if _, recent := k.provenBefore(list); list == none || recent {
		return nil
	}
	k.asking.Lock()
	defer k.asking.Unlock()
	before, recent := k.provenBefore(list)
	if recent {
		return nil
	}
	for _, probed := range Probed {
		if listOf(k.given, probed) == list {
			err := k.ask(ctx, list, probed)
			if errors.Is(err, ErrNoAnswer) && before {
				return nil
			}
			return err
		}
	}
	return fmt.Errorf("%w: the list of resources with %s in %s has neither configmaps nor secrets nor leases.coordination.k8s.io, so that its keys cannot be checked; add one of them, there and in the API servers",
		ErrKeys, resource, k.name)
}

// provenBefore reports whether the writer of a list has been proven, and whether that was recently.
func (k *Keys) provenBefore(list int) (before, recent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, before := k.proven[list]
	return before, before && time.Since(at) < provenFor
}

// ErrNoAnswer means that no API server has stored a probe.
var ErrNoAnswer = errors.New("no API server has stored a probe")

// ask follows an API server in what it writes a list with.
func (k *Keys) ask(ctx context.Context, list int, resource schema.GroupResource) error {
	if k.probe == nil {
		return fmt.Errorf("%w: %s must not be written here", ErrKeys, resource)
	}
	key, stored, err := k.probe(ctx, resource)
	if err != nil {
		return fmt.Errorf("%w: the keys in %s cannot be checked: %w: %w", ErrKeys, k.name, ErrNoAnswer, err)
	}
	found, has := writerOf(&k.given.Resources[list], stored)
	if !has {
		return k.differs(resource, stored)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if prefixOf(&k.config.Resources[list]) != found.prefix {
		if k.loaded != nil {
			k.loaded.close()
			k.loaded = nil
		}
		// The writer is looked up again: it is at another place than in the configuration that was given.
		found, _ = writerOf(&k.config.Resources[list], stored)
		k.config = with(k.config, list, found)
		k.changes++
	}
	loaded, err := k.use()
	if err != nil {
		return err
	}
	if found.prefix != "" {
		plain, _, err := loaded.TransformerForResource(resource).TransformFromStorage(ctx, stored, value.DefaultContext(key))
		if err == nil && !isObject(plain) {
			err = errors.New("the result is no object")
		}
		if err != nil {
			return fmt.Errorf("%w: what an API server stores %s cannot be decrypted with the keys in %s: another key has that name (%w)", ErrKeys, describe(stored), k.name, err)
		}
	}
	k.proven[list] = time.Now()
	return nil
}

func (k *Keys) differs(resource schema.GroupResource, stored []byte) error {
	return fmt.Errorf("%w: %s that an API server stores are %s, which the list for %s in %s does not have; give the Secret the configuration of the API servers", ErrKeys, resource, describe(stored), resource, k.name)
}

// Check asks the API servers about all lists, and about what no list names. Nothing must be written before it has succeeded.
func Check(ctx context.Context, k *Keys, probe Probe) error {
	for _, resource := range Probed {
		if k != nil && listOf(k.given, resource) != none {
			continue
		}
		_, stored, err := probe(ctx, resource)
		if err != nil {
			return fmt.Errorf("%w: whether the API servers encrypt %s cannot be checked: %w", ErrKeys, resource, err)
		}
		switch {
		case !IsEncrypted(stored):
		case k == nil:
			return fmt.Errorf("%w: %s that an API server stores are %s, and spec.etcd.encryption of the Cell names no keys", ErrKeys, resource, describe(stored))
		default:
			return k.differs(resource, stored)
		}
	}
	if k == nil {
		return nil
	}
	k.mu.Lock()
	clear(k.proven)
	k.mu.Unlock()
	return k.proveAll(ctx)
}

// Follow has values written with what the API servers use now, and returns how often that has changed. Any write may have noticed a change before.
func (k *Keys) Follow(ctx context.Context) (changes int, err error) {
	if k == nil {
		return 0, nil
	}
	err = k.proveAll(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes, err
}

// proveAll proves the writers of all lists that can encrypt.
func (k *Keys) proveAll(ctx context.Context) error {
	for i := range k.given.Resources {
		list := &k.given.Resources[i]
		if len(list.Resources) == 0 || !slices.ContainsFunc(writers(list), func(w writer) bool { return w.prefix != "" }) {
			continue
		}
		if err := k.prove(ctx, schema.ParseGroupResource(list.Resources[0])); err != nil {
			return err
		}
	}
	return nil
}
