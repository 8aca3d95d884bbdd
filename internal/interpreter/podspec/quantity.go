package podspec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	maxQuantityLength   = 64
	maxQuantityExponent = 30
)

// Quantity returns the quantity a decoded JSON value stands for. Quantities with huge exponents are refused: they
// are valid, but adding two of them takes forever.
func Quantity(value any) (resource.Quantity, error) {
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case int64:
		return *resource.NewQuantity(v, resource.DecimalSI), nil
	case int:
		return *resource.NewQuantity(int64(v), resource.DecimalSI), nil
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return resource.Quantity{}, fmt.Errorf("expected a quantity, found a value of type %T", value)
	}
	if len(text) > maxQuantityLength {
		return resource.Quantity{}, fmt.Errorf("a quantity has at most %d characters", maxQuantityLength)
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 && i+1 < len(text) {
		exponent, err := strconv.Atoi(text[i+1:])
		if err != nil || exponent > maxQuantityExponent || exponent < -maxQuantityExponent {
			return resource.Quantity{}, fmt.Errorf("the exponent of a quantity is a number from -%d to %d", maxQuantityExponent, maxQuantityExponent)
		}
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, errors.New("not a quantity such as 500m or 1Gi")
	}
	return quantity, nil
}
