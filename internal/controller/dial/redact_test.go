package dial

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// Of what a login needs, the password stays secret by itself too, and the token that it gave.
func TestConceal(t *testing.T) {
	s := new(Secrets)
	s.Hide("ali:babababa", "Bearer abcdefghij", "x", "p+w d/1")
	for text, want := range map[string]string{
		"ali:babababa and babababa": "… and …", "token abcdefghij": "token …", "cut off: ABCDEFG": "cut off: …",
		"ex":    "ex",
		"abcde": "abcde", "p%2bw+d%2F1": "…", "": "",
	} {
		if got := s.Conceal(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for i := range 1000 {
		s.Hide("token-" + strconv.Itoa(i))
	}
	if len(s.hidden) > maxHidden || s.Conceal("token-999") != "…" {
		t.Errorf("%d keys are remembered", len(s.hidden))
	}
}

// FuzzConceal has a server repeat a key in the forms that servers use, among other text and cut off.
func FuzzConceal(f *testing.F) {
	f.Add("Bearer abcdefghij", "the token %s is wrong: ")
	f.Add("ali:p+w d/1", "…\xff")
	f.Fuzz(func(t *testing.T, key, text string) {
		defer memtest.Limit(t, 100*(len(key)+len(text)))()
		s := new(Secrets)
		s.Hide(key)
		for _, form := range []string{key, url.QueryEscape(key), strings.ToUpper(url.PathEscape(key))} {
			if len(key) < tellingPart || strings.Contains(text+"…"+text, form) {
				continue // it hides nothing
			}
			if said := s.Conceal(text + form + text); strings.Contains(said, form) {
				t.Fatalf("%q is in %q", form, said)
			}
		}
	})
}
