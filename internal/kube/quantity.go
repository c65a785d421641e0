package kube

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubenergy/kubenergy/internal/energy/jsonscan"
)

const maxQuantity = 64 // bytes

var (
	errQuantity   = errors.New("quantity is too long, contains an escape, or has an exponent of more than two digits")
	hugeExponent  = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)
	quantityField = map[string]bool{ // fields of nodes, pods and Karmada's bindings, verified by TestQuantityFields
		"allocatable": true, "allocatedResources": true, "capacity": true, "divisor": true, "limits": true,
		"overhead": true, "requests": true, "resourceRequest": true, "resources": true, "sizeLimit": true,
	}
)

// ParseQuantity parses a quantity from an untrusted source. Unlike [resource.ParseQuantity], which processes
// 1e-999999999 digit by digit, it takes little time for any input. It rejects negative quantities.
func ParseQuantity(text string) (resource.Quantity, error) {
	q, err := resource.Quantity{}, errQuantity
	if len(text) <= maxQuantity && !hugeExponent.MatchString(text) {
		q, err = resource.ParseQuantity(text)
	}
	// a suffix without a number is parsed as 0
	if err == nil && (q.Sign() < 0 || !strings.ContainsAny(text, "0123456789")) {
		err = errors.New("want a number that is not negative")
	}
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("parsing quantity %.40q: %w", text, err)
	}
	return q, nil
}

// CheckQuantities returns an error if data, which is JSON from an untrusted source, contains a quantity of a node,
// a pod or a binding that takes long to parse. It must be called before data is decoded, because decoding parses
// quantities.
func CheckQuantities(data []byte) error {
	return jsonscan.Scalars(data, func(key []byte) bool { return quantityField[string(key)] }, func(q []byte) error {
		// escapes can hide exponents
		if len(q) > maxQuantity || hugeExponent.Match(q) || bytes.IndexByte(q, '\\') >= 0 {
			return errQuantity
		}
		return nil
	})
}

// CheckedJSON only decodes JSON, and validates it with [CheckQuantities] first. It is meant for untrusted API
// servers.
type CheckedJSON struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements [runtime.NegotiatedSerializer]. A response in any other media type is an error.
func (c CheckedJSON) SupportedMediaTypes() []runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(c.NegotiatedSerializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	info.Serializer = checkedSerializer{info.Serializer}
	return []runtime.SerializerInfo{info}
}

type checkedSerializer struct{ runtime.Serializer }

func (c checkedSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (
	runtime.Object, *schema.GroupVersionKind, error,
) {
	if err := CheckQuantities(data); err != nil {
		return nil, nil, err
	}
	return c.Serializer.Decode(data, defaults, into)
}
