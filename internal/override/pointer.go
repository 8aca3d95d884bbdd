package override

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// pointer is a parsed JSON pointer (RFC 6901) to something below the root.
type pointer []string

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

func parsePointer(path string) (pointer, error) {
	if path == "" || path == "/" {
		return nil, fmt.Errorf("path %q must name a field, such as /spec/replicas", path)
	}
	if path[0] != '/' {
		return nil, fmt.Errorf("path %q must start with a slash", path)
	}
	tokens := strings.Split(path[1:], "/")
	for i, token := range tokens {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(token), "~") {
			return nil, fmt.Errorf("path %q: write ~0 for a tilde in a name, and ~1 for a slash", path)
		}
		tokens[i] = unescape.Replace(token)
	}
	return tokens, nil
}

// String returns the pointer as it is parsed.
func (p pointer) String() string {
	var b strings.Builder
	for _, token := range p {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// compilePlaintext compiles an operation of RFC 6902. As in JSON patches of Kubernetes, negative indices count from the
// end of a list.
func compilePlaintext(spec *policyv1alpha1.PlaintextOverrider) (func(map[string]any) error, error) {
	at, err := parsePointer(spec.Path)
	if err != nil {
		return nil, err
	}
	value, err := decodeValue(spec.Value)
	if err != nil {
		return nil, fmt.Errorf("value for %s: %w", at, err)
	}
	switch spec.Operator {
	case policyv1alpha1.OverriderOpAdd, policyv1alpha1.OverriderOpReplace, policyv1alpha1.OverriderOpRemove:
	default:
		return nil, fmt.Errorf("unknown operator %q, use add, remove or replace", spec.Operator)
	}
	return func(obj map[string]any) error {
		if _, err := edit(obj, at, spec.Operator, value); err != nil {
			return fmt.Errorf("%s %s: %w", spec.Operator, at, err)
		}
		return nil
	}, nil
}

func decodeValue(raw apiextensionsv1.JSON) (any, error) {
	if len(raw.Raw) == 0 {
		return nil, nil
	}
	var value any
	if err := json.Unmarshal(raw.Raw, &value); err != nil {
		return nil, err
	}
	return value, nil
}

// edit changes what the pointer refers to below node. It returns node, which is another slice if the length of a list
// has changed.
func edit(node any, at pointer, operator policyv1alpha1.OverriderOperator, value any) (any, error) {
	if len(at) == 1 {
		return editHere(node, at[0], operator, value)
	}
	child, store, err := descend(node, at[0])
	if err != nil {
		return nil, err
	}
	changed, err := edit(child, at[1:], operator, value)
	if err != nil {
		return nil, err
	}
	if _, isList := changed.([]any); isList {
		store(changed)
	}
	return node, nil
}

func editHere(node any, token string, operator policyv1alpha1.OverriderOperator, value any) (any, error) {
	switch container := node.(type) {
	case map[string]any:
		if _, exists := container[token]; !exists && operator != policyv1alpha1.OverriderOpAdd {
			return nil, fmt.Errorf("there is no %q", token)
		}
		if operator == policyv1alpha1.OverriderOpRemove {
			delete(container, token)
		} else {
			container[token] = runtime.DeepCopyJSONValue(value)
		}
		return container, nil
	case []any:
		return editList(container, token, operator, value)
	default:
		return nil, fmt.Errorf("cannot find %q in %s", token, describe(node))
	}
}

func editList(list []any, token string, operator policyv1alpha1.OverriderOperator, value any) (any, error) {
	if operator == policyv1alpha1.OverriderOpAdd {
		position, err := listIndex(token, len(list)+1)
		if token == "-" {
			position, err = len(list), nil
		}
		if err != nil {
			return nil, err
		}
		return slices.Insert(list, position, runtime.DeepCopyJSONValue(value)), nil
	}
	position, err := listIndex(token, len(list))
	if err != nil {
		return nil, err
	}
	if operator == policyv1alpha1.OverriderOpRemove {
		return slices.Delete(list, position, position+1), nil
	}
	list[position] = runtime.DeepCopyJSONValue(value)
	return list, nil
}

// descend returns the child of node that token names, and a function that replaces it.
func descend(node any, token string) (child any, store func(any), err error) {
	switch container := node.(type) {
	case map[string]any:
		child, exists := container[token]
		if !exists {
			return nil, nil, fmt.Errorf("there is no %q", token)
		}
		return child, func(changed any) { container[token] = changed }, nil
	case []any:
		position, err := listIndex(token, len(container))
		if err != nil {
			return nil, nil, err
		}
		return container[position], func(changed any) { container[position] = changed }, nil
	default:
		return nil, nil, fmt.Errorf("cannot find %q in %s", token, describe(node))
	}
}

// get returns what the pointer refers to, and a function that replaces it.
func (p pointer) get(obj map[string]any) (value any, store func(any), err error) {
	value = obj
	for _, token := range p {
		if value, store, err = descend(value, token); err != nil {
			return nil, nil, err
		}
	}
	return value, store, nil
}

// listIndex parses an index into a list with the given number of places.
func listIndex(token string, places int) (int, error) {
	digits := strings.TrimPrefix(token, "-")
	position, err := strconv.Atoi(token)
	if err != nil || (len(digits) > 1 && digits[0] == '0') || token[0] == '+' {
		return 0, fmt.Errorf("%q is not an index into a list", token)
	}
	if position < 0 {
		position += places
	}
	if position < 0 || position >= places {
		return 0, fmt.Errorf("index %s is out of range", token)
	}
	return position, nil
}

func describe(node any) string {
	switch node.(type) {
	case nil:
		return "null, which has no fields"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	default:
		return "a plain value, which has no fields"
	}
}

var errNotText = errors.New("the field does not hold a string")
