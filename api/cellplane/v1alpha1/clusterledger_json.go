package v1alpha1

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MarshalJSON implements json.Marshaler.
func (n LedgerNodes) MarshalJSON() ([]byte, error) {
	text := strconv.AppendInt(nil, int64(n.Count), 10)
	for _, name := range slices.Sorted(maps.Keys(n.Free)) {
		quantity := n.Free[name]
		text = append(append(append(text, ' '), name...), '=')
		text = append(text, quantity.String()...)
	}
	return json.Marshal(string(text))
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *LedgerNodes) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return fmt.Errorf("nodes of a ledger are a count and what they have left, not %q", text)
	}
	count, err := strconv.ParseInt(words[0], 10, 32)
	if err != nil || count < 0 {
		return fmt.Errorf("%q is not a count of nodes", words[0])
	}
	free := make(corev1.ResourceList, len(words)-1)
	for _, word := range words[1:] {
		name, amount, _ := strings.Cut(word, "=")
		quantity, err := resource.ParseQuantity(amount)
		if err != nil {
			return fmt.Errorf("reading what nodes have left of %q: %w", word, err)
		}
		free[corev1.ResourceName(name)] = quantity
	}
	n.Count, n.Free = int32(count), free
	return nil
}

// plainReservation is a Reservation without methods.
type plainReservation Reservation

// MarshalJSON implements json.Marshaler. It keeps the fields of reservations out of the schema.
func (r Reservation) MarshalJSON() ([]byte, error) { return json.Marshal(plainReservation(r)) }

// UnmarshalJSON implements json.Unmarshaler.
func (r *Reservation) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, (*plainReservation)(r))
}
