package policy

import (
	"strings"
	"testing"
)

// TestLongValuesAreNotParsed verifies that long values are rejected early, because annotations may contain 256 KiB
// and are read under the lock of the scheduling queue.
func TestLongValuesAreNotParsed(t *testing.T) {
	for length, want := range map[int]bool{maxValue: true, maxValue + 1: false} {
		parsed := false
		_, err := parse(strings.Repeat("9", length), func(string) (int, error) { parsed = true; return 0, nil })
		if parsed != want || (err == nil) != want {
			t.Errorf("%d bytes: parsed %v, error %v", length, parsed, err)
		}
	}
}
