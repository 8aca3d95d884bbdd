package v1alpha1

import (
	"encoding/json"
	"errors"
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

// UnmarshalJSON implements json.Unmarshaler. It never fails: a line that makes no sense must not keep anybody from
// reading the others, nor the other ledgers.
func (n *LedgerNodes) UnmarshalJSON(data []byte) error {
	*n = LedgerNodes{}
	if err := n.parse(data); err != nil {
		*n = LedgerNodes{Unreadable: excerpt(err, data)}
	}
	return nil
}

func (n *LedgerNodes) parse(data []byte) error {
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

// UnmarshalJSON implements json.Unmarshaler. It never fails, as no schema validates reservations: one that cannot
// be read must not prevent reading the others.
func (r *Reservation) UnmarshalJSON(data []byte) error {
	*r = Reservation{}
	err := json.Unmarshal(data, (*plainReservation)(r))
	if err == nil {
		err = r.check()
	}
	if err != nil {
		*r = Reservation{Unreadable: excerpt(err, data)}
	}
	return nil
}

// check says what a schema would refuse.
func (r *Reservation) check() error {
	switch {
	case r.Workload.Kind == "" || r.Workload.Name == "":
		return errors.New("it names no workload")
	case r.Total < 0:
		return fmt.Errorf("its total is %d", r.Total)
	case r.Expires.IsZero():
		return errors.New("it never expires")
	}
	for i := range r.Pods {
		if r.Pods[i].Count < 0 {
			return fmt.Errorf("it expects %d pods of class %s", r.Pods[i].Count, r.Pods[i].Class)
		}
	}
	for name, quantity := range r.Requests {
		if quantity.Sign() < 0 {
			return fmt.Errorf("its pods ask for %s of %s", quantity.String(), name)
		}
	}
	return nil
}

// excerpt says what is wrong with a text, and how it begins.
func excerpt(err error, text []byte) string {
	const most = 200
	if len(text) > most {
		text = append(text[:most:most], "…"...)
	}
	return fmt.Sprintf("%v: %s", err, text)
}
