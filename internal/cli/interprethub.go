package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
)

// hubCustomization is a customization in the hub.
type hubCustomization struct {
	client client.Client
	name   string
}

func (h *hubCustomization) place() string { return "in the federation" }

func (h *hubCustomization) load(ctx context.Context) (*configv1alpha1.ResourceInterpreterCustomization, []*configv1alpha1.ResourceInterpreterCustomization, error) {
	list := &configv1alpha1.ResourceInterpreterCustomizationList{}
	if err := h.client.List(ctx, list); err != nil {
		return nil, nil, fmt.Errorf("reading the customizations of the federation: %w", err)
	}
	var original *configv1alpha1.ResourceInterpreterCustomization
	var others []*configv1alpha1.ResourceInterpreterCustomization
	for i := range list.Items {
		if list.Items[i].Name == h.name {
			original = &list.Items[i]
			continue
		}
		others = append(others, &list.Items[i])
	}
	if original == nil {
		return nil, nil, fmt.Errorf("there is no customization called %s in the federation; create one with --edit -f FILE and apply it", h.name)
	}
	return original, others, nil
}

func (h *hubCustomization) save(ctx context.Context, changed *configv1alpha1.ResourceInterpreterCustomization) error {
	if changed.Name != h.name {
		return invalidEditError{fmt.Errorf("its name in the federation is %s and cannot be changed", h.name)}
	}
	err := h.client.Update(ctx, changed)
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("saving customization %s: %w", h.name, errChangedMeanwhile)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("saving customization %s: somebody has deleted it since it was opened", h.name)
	case apierrors.IsInvalid(err):
		return invalidEditError{err}
	case err != nil:
		return fmt.Errorf("saving customization %s: %w", h.name, err)
	}
	return nil
}
