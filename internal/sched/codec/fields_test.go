package codec_test

import (
	"reflect"
	"testing"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// A snapshot is written with jobs and nodes as they are, so each of their fields says under which name, or that it is
// not: what has no tag would be written, and read without a check.
func TestFieldsOfRecordsAreNamed(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[sched.Job](), reflect.TypeFor[sched.Node]()} {
		for field := range of.Fields() {
			if field.Tag.Get("json") == "" {
				t.Errorf("%s.%s has no json tag: name it, and check it where package sched reads snapshots", of, field.Name)
			}
		}
	}
}
