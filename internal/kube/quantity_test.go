package kube_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// slow contains quantities that [resource.ParseQuantity] parses for seconds or practically forever.
var slow = []string{
	"1e-100000000", "1E-999999999", "1e100000000", "-1e-100000000", "1e+100", "0.1e-999999999", `1\u0065-999999999`,
	strings.Repeat("9", 1<<20),
}

func TestParseQuantity(t *testing.T) {
	for _, text := range append([]string{"", "much", "m", "-1", "1Ei2", "1e", " 1", "1\\u0065-9"}, slow...) {
		if q, err := kube.ParseQuantity(text); err == nil {
			t.Errorf("%.40q is %s", text, q.String())
		}
	}
	for _, text := range []string{"0", "1500m", "2Gi", "1e3", "1E9", "12e-3", ".5", "9999999999Ei", "1e99", "1e-99"} {
		want := resource.MustParse(text)
		if q, err := kube.ParseQuantity(text); err != nil || q.Cmp(want) != 0 {
			t.Errorf("%s is %s, %v", text, q.String(), err)
		}
	}
}

func TestCheckQuantities(t *testing.T) {
	for _, quantity := range slow {
		for _, text := range []string{
			`{"status":{"capacity":{"cpu":"X"}}}`,
			`{"items":[{"status":{"allocatable":{"cpu":"1","memory":"X"}}}]}`,
			`{"spec":{"containers":[{"resources":{"requests":{"cpu": " X "}}}]}}`,
			`{"spec":{"containers":[{"resources":{"r\u0065quests":{"cpu":"X"}}}]}}`,
			`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"X"}}]}}`,
			`{"resources":{"limits":{"cpu":"1"},"cpu":"X"}}`,
			`{"replicaRequirements":{"resourceRequest":{"cpu":"X"}}}`,
		} {
			// quantities may also be JSON numbers
			for _, text := range []string{text, strings.ReplaceAll(text, `"X"`, "X")} {
				if kube.CheckQuantities([]byte(strings.ReplaceAll(text, "X", quantity))) == nil {
					t.Errorf("%.40s is accepted in %s", quantity, text)
				}
			}
		}
	}
	for _, text := range []string{
		`{"metadata":{"name":"1e1000","labels":{"commit":"7e12345"}},"status":{"capacity":{"1e1000":"1e3"}}}`,
		`{"spec":{"containers":[{"image":"x@sha256:1e1234567890","resources":{"limits":null,"claims":[{"name":"1e1000"}]}}]}}`,
		`{"status":{"capacity":null,"allocatable":{}}}`, `[]`, `{}`, ``, `"capacity"`, `]]}}`,
	} {
		if err := kube.CheckQuantities([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestQuantityFields verifies that every field of nodes and pods that contains quantities is checked. It fails if a
// new version of Kubernetes adds such a field.
func TestQuantityFields(t *testing.T) {
	quantity := reflect.TypeFor[resource.Quantity]()
	seen := map[reflect.Type]bool{}
	fields := map[string]bool{}
	var visit func(at reflect.Type, name string)
	visit = func(at reflect.Type, name string) {
		if at == quantity {
			fields[name] = true
			return
		}
		switch at.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			visit(at.Elem(), name)
		case reflect.Struct:
			if seen[at] {
				return
			}
			seen[at] = true
			for i := range at.NumField() {
				f := at.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				visit(f.Type, name)
			}
		}
	}
	visit(reflect.TypeFor[v1.Node](), "")
	visit(reflect.TypeFor[v1.Pod](), "")
	if len(fields) < 5 {
		t.Fatalf("only the fields %v were found", fields)
	}
	for name := range fields {
		if kube.CheckQuantities([]byte(`{"`+name+`":"1e-100000000"}`)) == nil ||
			kube.CheckQuantities([]byte(`{"`+name+`":{"cpu":"1e-100000000"}}`)) == nil {
			t.Errorf("%s is not checked", name)
		}
	}
}

// FuzzQuantities decodes nodes and pods of other clusters like the client.
func FuzzQuantities(f *testing.F) {
	for _, quantity := range append(slices.Clone(slow[:6]), "1e99", "12Ei", "1.5") {
		f.Add([]byte(`{"status":{"capacity":{"cpu":"` + quantity + `"}}}`))
		f.Add([]byte(`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":` + quantity + `}}]}}`))
		f.Add([]byte(`{"spec":{"containers":[{"resources":{"r\u0065quests":{"cpu":"` + quantity + `"}}}]}}`))
	}
	decoder := kube.CheckedJSON{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}.SupportedMediaTypes()[0].Serializer
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memtest.Limit(t, 300*len(data))()
		for _, kind := range []string{"Node", "Pod"} {
			gvk := v1.SchemeGroupVersion.WithKind(kind)
			o, _, err := decoder.Decode(data, &gvk, nil)
			if err != nil {
				continue
			}
			if _, err := json.Marshal(o); err != nil {
				t.Error(err)
			}
		}
	})
}
