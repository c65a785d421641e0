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
	errQuantity   = errors.New("a quantity is too long, has an escape, or an exponent of more than two digits")
	hugeExponent  = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)
	quantityField = map[string]bool{ // of nodes, pods and Karmada's bindings: TestQuantityFields
		"allocatable": true, "allocatedResources": true, "capacity": true, "divisor": true, "limits": true,
		"overhead": true, "requests": true, "resourceRequest": true, "resources": true, "sizeLimit": true,
	}
)

// ParseQuantity parses a quantity from a source that is not trusted. Unlike [resource.ParseQuantity], which computes
// 1e-999999999 digit by digit, it returns at once whatever the text is. It rejects negative quantities.
func ParseQuantity(text string) (resource.Quantity, error) {
	q, err := resource.Quantity{}, errQuantity
	if len(text) <= maxQuantity && !hugeExponent.MatchString(text) {
		q, err = resource.ParseQuantity(text)
	}
	if err == nil && (q.Sign() < 0 || !strings.ContainsAny(text, "0123456789")) { // a suffix alone is parsed as 0
		err = errors.New("it is negative, or no number")
	}
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("parsing quantity %.40q: %w", text, err)
	}
	return q, nil
}

// CheckQuantities returns an error if data, JSON from a source that is not trusted, holds a quantity of a node, a pod
// or a binding that takes long to parse. Call it before data is decoded: decoding parses quantities.
func CheckQuantities(data []byte) error {
	return jsonscan.Scalars(data, func(key []byte) bool { return quantityField[string(key)] }, func(q []byte) error {
		if len(q) > maxQuantity || hugeExponent.Match(q) || bytes.IndexByte(q, '\\') >= 0 { // escapes hide exponents
			return errQuantity
		}
		return nil
	})
}

// CheckedJSON decodes only JSON, and only after [CheckQuantities] has passed it: for API servers that are not trusted.
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
