package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// allows reports whether one of the rules allows a request.
func allows(rules []rbacv1.PolicyRule, a authorizer.Attributes) bool {
	for i := range rules {
		if allowsOne(&rules[i], a) {
			return true
		}
	}
	return false
}

func allowsOne(rule *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	if !has(rule.Verbs, a.GetVerb(), rbacv1.VerbAll) {
		return false
	}
	if !a.IsResourceRequest() {
		return matchesPath(rule.NonResourceURLs, a.GetPath())
	}
	return has(rule.APIGroups, a.GetAPIGroup(), rbacv1.APIGroupAll) &&
		matchesResource(rule.Resources, a.GetResource(), a.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}

// has reports whether a list has a value or the wildcard.
func has(list []string, value, wildcard string) bool {
	for _, entry := range list {
		if entry == value || entry == wildcard {
			return true
		}
	}
	return false
}

// matchesResource matches `resource`, `resource/subresource`, `*/subresource` and `*`.
func matchesResource(list []string, resource, subresource string) bool {
	for _, entry := range list {
		if entry == rbacv1.ResourceAll {
			return true
		}
		if subresource == "" {
			if entry == resource {
				return true
			}
			continue
		}
		of, sub, found := strings.Cut(entry, "/")
		if found && sub == subresource && (of == resource || of == rbacv1.ResourceAll) {
			return true
		}
	}
	return false
}

// matchesPath matches a path, or the beginning of one before a final star.
func matchesPath(list []string, path string) bool {
	for _, entry := range list {
		if entry == rbacv1.NonResourceAll || entry == path {
			return true
		}
		if strings.HasSuffix(entry, "*") && strings.HasPrefix(path, strings.TrimRight(entry, "*")) {
			return true
		}
	}
	return false
}
