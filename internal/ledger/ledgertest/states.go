package ledgertest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// states tests that states survive a restart, and that old ones are dropped.
func states(t *testing.T, open func() (ledger.Store, error)) {
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	save := func(name string, payload []byte) error {
		return s.(ledger.StateStore).SaveState(t.Context(), name, payload)
	}
	check := func(prefix string, want map[string][]byte) {
		t.Helper()
		got, err := s.(ledger.StateStore).States(t.Context(), prefix)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("states with prefix %q (-want +got), error %v:\n%s", prefix, err, diff)
		}
	}
	for _, state := range [][2]string{{"a/ü", "1"}, {"a_b", "2"}, {"A/c", "3"}, {"a/ü", "4"}, {"%", "5"}} {
		if err := save(state[0], []byte(state[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := save("a/large", bytes.Repeat([]byte("x"), ledger.MaxState+1)); !errors.Is(err, ledger.ErrTooLarge) {
		t.Errorf("saving too large a state: error = %v", err)
	}
	check("a/", map[string][]byte{"a/ü": []byte("4")})
	check("a_", map[string][]byte{"a_b": []byte("2")})
	check("b", map[string][]byte{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, open)
	check("", map[string][]byte{"a/ü": []byte("4"), "a_b": []byte("2"), "A/c": []byte("3"), "%": []byte("5")})
	for i, want := range []map[string][]byte{{"A/c": []byte("3")}, {}} {
		if err := s.Keep(t.Context(), ledger.Retention{}, time.Now().AddDate(2+2*i, 0, 0)); err != nil {
			t.Fatal(err)
		}
		check("A", want)
	}
}
