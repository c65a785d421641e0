package access_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/access"
)

func sum(token string) string {
	s := sha256.Sum256([]byte(token))
	return hex.EncodeToString(s[:])
}

func write(t *testing.T, file, text string) {
	t.Helper()
	next := file + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}

func TestHostTokens(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	file, c := filepath.Join(t.TempDir(), "hosts.yaml"), newClock()
	if _, err := access.NewHostTokens(file, c.now, log); err == nil {
		t.Error("expected an error for a missing file")
	}
	write(t, file, "hosts:\n- node: rack1\n  tokenSHA256: "+sum(
		"one")+"\n  maxPowerWatts: 800\n  site: north\n- node: rack2\n  tokenSHA256: "+strings.ToUpper(sum("two"))+"\n")
	h, err := access.NewHostTokens(file, c.now, log)
	if err != nil {
		t.Fatal(err)
	}
	node := func(token string) string {
		host, _ := h.Find(token)
		return host.Node
	}
	if got, ok := h.Find("one"); !ok || got != (access.Host{Node: "rack1", MaxPower: 800, Site: "north"}) {
		t.Errorf("got host %+v", got)
	}
	if node("two") != "rack2" || node("three") != "" || node("") != "" || node(sum("one")) != "" {
		t.Error("unexpected hosts for the tokens")
	}
	if host, ok := h.Host("rack1"); !ok || host.MaxPower != 800 {
		t.Errorf("unexpected host %+v", host)
	}

	// During token rotation, both tokens are accepted until the previous one is removed.
	write(t, file, `{"hosts":[{"node":"rack1","tokenSHA256":"`+sum("uno")+`","previousTokenSHA256":"`+sum("one")+`"}]}`)
	if node("one") != "rack1" {
		t.Error("the file was reloaded before the interval had elapsed")
	}
	c.add(6 * time.Second)
	if node("one") != "rack1" || node("uno") != "rack1" || node("two") != "" {
		t.Error("the previous or the new token was rejected during rotation")
	}
	write(t, file, `{"hosts":[{"node":"rack1","tokenSHA256":"`+sum("uno")+`"}]}`)
	c.add(6 * time.Second)
	if node("one") != "" || node("two") != "" || node("uno") != "rack1" {
		t.Error("the changed file was not reloaded")
	}
	write(t, file, "hosts: [{node: rack1, tokenSHA256: secret-without-digest}]")
	c.add(6 * time.Second)
	if node("uno") != "rack1" {
		t.Error("an invalid file replaced the previous tokens")
	}
	if !strings.Contains(logged.String(), "rack1") || strings.Contains(logged.String(), "secret") {
		t.Errorf("unexpected log output: %s", &logged)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	c.add(6 * time.Second)
	if node("uno") != "" {
		t.Error("a token was accepted after the file had been removed")
	}
	write(t, file, "hosts: [")
	c.add(6 * time.Second)
	if node("uno") != "" {
		t.Error("a token of the removed file was accepted after an invalid file had been written")
	}
	write(t, file, `{"hosts":[{"node":"rack1","tokenSHA256":"`+sum("uno")+`"}]}`)
	c.add(6 * time.Second)
	if node("uno") != "rack1" {
		t.Error("a token was rejected after the file had been restored")
	}
	none, err := access.NewHostTokens("", c.now, log)
	if err != nil {
		t.Error(err)
	}
	if _, ok := none.Find("uno"); ok {
		t.Error("a nil HostTokens contains a token")
	}
}

func TestHostTokensRefuse(t *testing.T) {
	if _, err := access.NewHostTokens("/dev/null", time.Now, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("expected an error for a device file")
	}
	one := fmt.Sprintf("{node: a, tokenSHA256: %s}", sum("one"))
	for name, text := range map[string]string{
		"unknown field": "hosts: []\ncolour: blue", "unknown in a host": "hosts: [{node: a, tokenSHA256: " +
			sum("one") + ", token: x}]",
		"node twice":  "hosts: [" + one + ", {node: a, tokenSHA256: " + sum("two") + "}]",
		"token twice": "hosts: [" + one + ", {node: b, tokenSHA256: " + sum("one") + "}]",
		"no node":     "hosts: [{tokenSHA256: " + sum("one") + "}]", "no token": "hosts: [{node: a}]",
		"a short digest":  "hosts: [{node: a, tokenSHA256: abcd}]",
		"a long digest":   "hosts: [{node: a, tokenSHA256: " + sum("one") + "00}]",
		"the empty token": "hosts: [{node: a, tokenSHA256: " + sum("") + "}]",
		"power":           "hosts: [{node: a, tokenSHA256: " + sum("one") + ", maxPowerWatts: -1}]",
		"NaN":             "hosts: [{node: a, tokenSHA256: " + sum("one") + ", maxPowerWatts: .nan}]",
		"invalid YAML":    "hosts: [", "a key twice": "hosts: []\nhosts: []",
		"a node of a cluster": "hosts: [{node: alpha/a, tokenSHA256: " + sum("one") + "}]",
		"control":             "hosts: [{node: \"a\\n\", tokenSHA256: " + sum("one") + "}]",
	} {
		file := filepath.Join(t.TempDir(), "hosts")
		write(t, file, text)
		if _, err := access.NewHostTokens(file, time.Now, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: expected an error", name)
		} else if strings.Contains(err.Error(), sum("one")) {
			t.Errorf("%s: the error contains a digest: %v", name, err)
		}
	}
}
