package override

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

func compileImage(spec *policyv1alpha1.ImageOverrider) (func(map[string]any) error, error) {
	rewrite, err := compileRewrite(spec)
	if err != nil {
		return nil, err
	}
	if spec.Predicate == nil {
		return func(obj map[string]any) error { return rewriteContainers(obj, rewrite) }, nil
	}
	at, err := parsePointer(spec.Predicate.Path)
	if err != nil {
		return nil, fmt.Errorf("predicate: %w", err)
	}
	return func(obj map[string]any) error { return rewriteAt(obj, at, rewrite) }, nil
}

// rewriteContainers changes the images of all containers of a workload, except init containers; those need a predicate.
func rewriteContainers(obj map[string]any, rewrite func(string) (string, error)) error {
	for i, container := range containersOf(obj) {
		image, ok := container["image"].(string)
		if !ok || image == "" {
			continue // the member may set the image
		}
		changed, err := rewrite(image)
		if err != nil {
			return fmt.Errorf("containers[%d]: %w", i, err)
		}
		container["image"] = changed
	}
	return nil
}

func rewriteAt(obj map[string]any, at pointer, rewrite func(string) (string, error)) error {
	value, store, err := at.get(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	image, ok := value.(string)
	if !ok {
		return fmt.Errorf("%s: %w", at, errNotText)
	}
	changed, err := rewrite(image)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	store(changed)
	return nil
}

// compileRewrite returns a function that changes an image name.
func compileRewrite(spec *policyv1alpha1.ImageOverrider) (func(string) (string, error), error) {
	var part func(*image) *string
	switch spec.Component {
	case policyv1alpha1.ImageComponentRegistry:
		part = func(i *image) *string { return &i.registry }
	case policyv1alpha1.ImageComponentRepository:
		part = func(i *image) *string { return &i.repository }
	case policyv1alpha1.ImageComponentTag:
		part = (*image).version
	default:
		return nil, fmt.Errorf("unknown component %q, use Registry, Repository or Tag", spec.Component)
	}
	var change func(*string)
	switch spec.Operator {
	case policyv1alpha1.OverriderOpAdd:
		change = func(part *string) { *part += spec.Value }
	case policyv1alpha1.OverriderOpReplace:
		change = func(part *string) { *part = spec.Value }
	case policyv1alpha1.OverriderOpRemove:
		change = func(part *string) { *part = "" }
	default:
		return nil, fmt.Errorf("unknown operator %q, use add, remove or replace", spec.Operator)
	}
	return func(name string) (string, error) {
		parsed, err := parseImage(name)
		if err != nil {
			return "", err
		}
		change(part(&parsed))
		changed := parsed.String()
		if _, err := parseImage(changed); err != nil {
			return "", fmt.Errorf("%s %s turns image %q into %q: %w", spec.Operator, spec.Component, name, changed, err)
		}
		return changed, nil
	}, nil
}

// image is an image name in parts.
type image struct {
	registry   string // with its port
	repository string
	tag        string
	digest     string
}

func parseImage(name string) (image, error) {
	parsed, err := reference.Parse(name)
	if err != nil {
		return image{}, fmt.Errorf("image %q: %w", name, err)
	}
	named, ok := parsed.(reference.Named)
	if !ok {
		return image{}, fmt.Errorf("image %q has no repository", name)
	}
	var result image
	result.registry, result.repository = splitRegistry(named.Name())
	if tagged, ok := parsed.(reference.Tagged); ok {
		result.tag = tagged.Tag()
	}
	if digested, ok := parsed.(reference.Digested); ok {
		result.digest = digested.Digest().String()
	}
	return result, nil
}

// splitRegistry follows the rule of container runtimes: the first part of a name is a host only if it looks like one,
// so that library/nginx has no registry.
func splitRegistry(name string) (registry, repository string) {
	first, rest, found := strings.Cut(name, "/")
	if !found || (!strings.ContainsAny(first, ".:") && first != "localhost") {
		return "", name
	}
	return first, rest
}

// version is what the component Tag means: the tag, or the digest of an image without one. Changing either removes the
// other, which would otherwise pin the image.
func (i *image) version() *string {
	if i.tag == "" {
		i.tag = i.digest
	}
	i.digest = ""
	return &i.tag
}

// String composes the image name. A version with a colon, which no tag can have, is a digest.
func (i *image) String() string {
	var b strings.Builder
	if i.registry != "" {
		b.WriteString(i.registry)
		b.WriteByte('/')
	}
	b.WriteString(i.repository)
	if i.tag != "" {
		separator := byte(':')
		if strings.Contains(i.tag, ":") {
			separator = '@'
		}
		b.WriteByte(separator)
		b.WriteString(i.tag)
	}
	if i.digest != "" {
		b.WriteByte('@')
		b.WriteString(i.digest)
	}
	return b.String()
}

// ImageOverriders returns overriders, without predicate, that turn one image name into another. It returns false if
// none do.
func ImageOverriders(from, to string) ([]policyv1alpha1.ImageOverrider, bool) {
	before, err := parseImage(from)
	if err != nil {
		return nil, false
	}
	after, err := parseImage(to)
	if err != nil {
		return nil, false
	}
	var overriders []policyv1alpha1.ImageOverrider
	set := func(component policyv1alpha1.ImageComponent, value string) {
		overrider := policyv1alpha1.ImageOverrider{Component: component, Operator: policyv1alpha1.OverriderOpReplace, Value: value}
		if value == "" {
			overrider.Operator = policyv1alpha1.OverriderOpRemove
		}
		overriders = append(overriders, overrider)
	}
	if before.registry != after.registry {
		set(policyv1alpha1.ImageComponentRegistry, after.registry)
	}
	if before.repository != after.repository {
		set(policyv1alpha1.ImageComponentRepository, after.repository)
	}
	if before.tag != after.tag || before.digest != after.digest {
		set(policyv1alpha1.ImageComponentTag, *after.version())
	}
	result := from
	for i := range overriders {
		rewrite, err := compileRewrite(&overriders[i])
		if err != nil {
			return nil, false
		}
		if result, err = rewrite(result); err != nil {
			return nil, false
		}
	}
	return overriders, result == to
}
