package atrest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// Probe has an API server store an object of a resource, and returns its key and what is stored. The error is ErrNoAnswer if they
// could not be reached.
type Probe func(ctx context.Context, resource schema.GroupResource) (key string, stored []byte, err error)

// Probed are the resources of which a probe can be made. A list with none of them cannot be checked.
var Probed = []schema.GroupResource{{Resource: "configmaps"}, {Resource: "secrets"}, {Group: "coordination.k8s.io", Resource: "leases"}}

const (
	// provenFor is how long the answer to a probe counts. If there is no other it counts longer: keys change only while API servers run.
	provenFor = 20 * time.Second
	// unansweredFor is how long a probe counts that nobody has answered, if there has never been an answer. Writes must not wait for each other's.
	unansweredFor = 5 * time.Second
)

// ErrNoAnswer means that no probe was stored, or can be read, because the API servers or the store could not be reached.
var ErrNoAnswer = errors.New("no API server has stored a probe")

// SetProbe sets how API servers are asked.
func (k *Keys) SetProbe(probe Probe) { k.probe = probe }

// answer is what API servers have answered about a list.
type answer struct {
	// proven means that they have been seen to use its writer.
	proven bool
	// asked is when they were last asked.
	asked time.Time
	// err is why there was no answer, if there has never been one.
	err error
}

// prove makes sure that the writer of a list is the one that the API servers use.
func (k *Keys) prove(ctx context.Context, list int) error {
	if list == none {
		return nil
	}
	if recent, err := k.answered(list); recent {
		return err
	}
	k.asking.Lock()
	defer k.asking.Unlock()
	if recent, err := k.answered(list); recent {
		return err
	}
	err := k.ask(ctx, list)
	if errors.Is(err, ErrNoAnswer) && !errors.Is(ctx.Err(), context.Canceled) {
		return k.unanswered(list, err)
	}
	return err
}

// answered reports whether API servers were asked about a list recently, and why nothing must be written by it.
func (k *Keys) answered(list int) (recent bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch last := k.answers[list]; {
	case last.proven:
		return k.now().Sub(last.asked) < provenFor, nil
	case last.err != nil:
		return k.now().Sub(last.asked) < unansweredFor, last.err
	default:
		return false, nil
	}
}

// unanswered records that no API server has answered. The last answer counts on, if there was one.
func (k *Keys) unanswered(list int, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.answers[list]
	if last.asked = k.now(); !last.proven {
		last.err = err
	}
	k.answers[list] = last
	return last.err
}

// sample is what an API server has stored as a probe.
type sample struct {
	resource schema.GroupResource
	key      string
	stored   []byte
	writer   writer
}

// ask follows the API servers in what they write a list with. What they have answered before does not count if that is wrong now.
func (k *Keys) ask(ctx context.Context, list int) error {
	err := k.follow(ctx, list)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		k.answers[list] = answer{proven: true, asked: k.now()}
	case !errors.Is(err, ErrNoAnswer) && ctx.Err() == nil:
		delete(k.answers, list)
	}
	return err
}

// follow has API servers store probes, and takes their writer. All resources that can be probed have to agree: what the list says about one of
// them need not be what API servers do with another.
func (k *Keys) follow(ctx context.Context, list int) error {
	samples, err := k.samples(ctx, list)
	if err != nil {
		return err
	}
	k.loading.Lock()
	defer k.loading.Unlock()
	config, loaded, err := k.inUse()
	if err != nil {
		return err
	}
	first := samples[0]
	if prefixOf(&config.Resources[list]) != first.writer.prefix {
		// The writer is looked up again: it is at another place than in the configuration that was given.
		found, _ := writerOf(&config.Resources[list], first.stored)
		config, loaded = with(config, list, found), nil
	}
	fresh := loaded == nil
	if fresh {
		if loaded, err = k.load(config); err != nil {
			return err
		}
	}
	for i := range samples {
		if err := k.decrypts(ctx, loaded, &samples[i]); err != nil {
			if fresh {
				loaded.close()
			}
			return err
		}
	}
	if !fresh {
		return nil
	}
	return k.use(config, loaded)
}

// samples has API servers store all probes that a list decides about. All have the same writer.
func (k *Keys) samples(ctx context.Context, list int) ([]sample, error) {
	var all []sample
	for _, resource := range Probed {
		if listOf(k.given, resource) != list {
			continue
		}
		if k.probe == nil {
			return nil, fmt.Errorf("%w: %s must not be written here", ErrKeys, resource)
		}
		key, stored, err := k.probe(ctx, resource)
		if err != nil {
			return nil, fmt.Errorf("%w: the keys in %s cannot be checked: %w", ErrKeys, k.name, err)
		}
		found, has := writerOf(&k.given.Resources[list], stored)
		if !has {
			return nil, k.differs(resource, stored)
		}
		if len(all) > 0 && all[0].writer.prefix != found.prefix {
			return nil, fmt.Errorf("%w: %s that an API server stores are %s, and %s are %s, but one list in %s has both; give the Secret the lists of the API servers, and all API servers the same",
				ErrKeys, all[0].resource, describe(all[0].stored), resource, describe(stored), k.name)
		}
		all = append(all, sample{resource, key, stored, found})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: the list of resources with %s in %s has neither configmaps nor secrets nor leases.coordination.k8s.io, so that its keys cannot be checked; add one of them, there and in the API servers",
			ErrKeys, strings.Join(k.given.Resources[list].Resources, ", "), k.name)
	}
	return all, nil
}

// decrypts returns an error if what an API server has stored cannot be decrypted.
func (k *Keys) decrypts(ctx context.Context, loaded *transformers, s *sample) error {
	if s.writer.prefix == "" {
		return nil
	}
	plain, _, err := loaded.TransformerForResource(s.resource).TransformFromStorage(ctx, s.stored, value.DefaultContext(s.key))
	if err == nil && !isObject(plain) {
		err = errors.New("the result is no object")
	}
	if err != nil {
		return fmt.Errorf("%w: what an API server stores %s cannot be decrypted with the keys in %s: another key has that name (%w)", ErrKeys, describe(s.stored), k.name, err)
	}
	return nil
}

func (k *Keys) differs(resource schema.GroupResource, stored []byte) error {
	return fmt.Errorf("%w: %s that an API server stores are %s, which the list for %s in %s does not have; give the Secret the configuration of the API servers", ErrKeys, resource, describe(stored), resource, k.name)
}

// Check asks the API servers about all lists, and about what no list names. Nothing must be written before it has succeeded.
func Check(ctx context.Context, k *Keys, probe Probe) error {
	if k != nil && k.missing != nil {
		return k.missing
	}
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
	return k.each(func(list int) error {
		k.asking.Lock()
		defer k.asking.Unlock()
		return k.ask(ctx, list)
	})
}

// Follow has values written with what the API servers use now, and returns how often that has changed. Any write may have noticed a change before.
func (k *Keys) Follow(ctx context.Context) (changes int, err error) {
	if k == nil {
		return 0, nil
	}
	if k.missing != nil {
		return 0, k.missing
	}
	err = k.each(func(list int) error { return k.prove(ctx, list) })
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes, err
}

// each calls a function for all lists that can encrypt, or that decide about what can be probed.
func (k *Keys) each(do func(list int) error) error {
	for i := range k.given.Resources {
		probed := slices.ContainsFunc(Probed, func(resource schema.GroupResource) bool { return listOf(k.given, resource) == i })
		if !probed && (len(k.given.Resources[i].Resources) == 0 || !canEncrypt(&k.given.Resources[i])) {
			continue
		}
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}
