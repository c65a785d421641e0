package codec_test

import (
	"reflect"
	"testing"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// TestFieldsOfRecordsAreNamed checks that all fields of jobs and nodes have a json tag, because both are embedded
// in the encoded form. A field without a tag would be encoded by default, and decoded without validation.
func TestFieldsOfRecordsAreNamed(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[sched.Job](), reflect.TypeFor[sched.Node]()} {
		for field := range of.Fields() {
			if field.Tag.Get("json") == "" {
				t.Errorf("field %s.%s has no json tag: add one, and validate the field in Decode", of, field.Name)
			}
		}
	}
}
