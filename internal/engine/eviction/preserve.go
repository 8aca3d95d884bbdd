package eviction

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/jsonpath"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// preserve turns parts of a status into labels. A value that is missing or invalid does not block the eviction; it
// is returned in missing.
func preserve(wanted *policyv1alpha1.StatePreservation, status []byte) (labels map[string]string, missing []string) {
	var content any
	if len(status) > 0 {
		if err := json.Unmarshal(status, &content); err != nil {
			content = nil
		}
	}
	for i := range wanted.Rules {
		rule := &wanted.Rules[i]
		value, err := find(content, rule.JSONPath)
		if err == nil {
			err = labelError(rule.AliasLabelName, value)
		}
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", rule.AliasLabelName, err))
			continue
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[rule.AliasLabelName] = value
	}
	return labels, missing
}

// find evaluates a JSONPath, with or without its braces.
func find(content any, path string) (string, error) {
	if !strings.HasPrefix(path, "{") {
		path = "{" + path + "}"
	}
	parser := jsonpath.New("state")
	if err := parser.Parse(path); err != nil {
		return "", err
	}
	if content == nil {
		return "", fmt.Errorf("the status is unknown")
	}
	var value bytes.Buffer
	if err := parser.Execute(&value, content); err != nil {
		return "", err
	}
	return value.String(), nil
}

func labelError(key, value string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return fmt.Errorf("invalid label: %s", problems[0])
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return fmt.Errorf("invalid label value: %s", problems[0])
	}
	return nil
}
