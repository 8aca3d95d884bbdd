package api_test

import (
	"bufio"
	"bytes"
	"math"
)

func bufferedReader(content []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(content)) }

// jsonNumbers turns whole floats into integers, as Kubernetes does, so that trees can be compared.
func jsonNumbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = jsonNumbers(inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = jsonNumbers(inner)
		}
	case float64:
		if value == math.Trunc(value) {
			return int64(value)
		}
	}
	return value
}
