package slurm_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/slurm"
)

// TestLuaAgrees verifies that job_submit.lua accepts the same annotations and uses the same delay as the driver.
func TestLuaAgrees(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", "deploy", "slurm", "job_submit.lua"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{
		"duration": "90m", "instant": "2026-06-01T18:00:00Z", "flag": "true", "text": "carbon+window", "number": "42",
		"share": "0.5",
	}
	var keys []string
	for _, m := range regexp.MustCompile(`\["([a-z-]+)"\] = \{(\w+),`).FindAllStringSubmatch(string(text), -1) {
		keys = append(keys, m[1])
		marks := map[string]string{v1alpha1.Prefix + m[1]: values[m[2]]}
		plain, _ := policy.ReadMarks(nil)
		if read, err := policy.ReadMarks(marks); err != nil || read == plain && values[m[2]] != "true" {
			t.Errorf("%v: %+v, %v", marks, read, err)
		}
		if nonsense, err := policy.ReadMarks(map[string]string{v1alpha1.Prefix + m[1]: "no such thing"}); err == nil {
			t.Errorf("%s accepts an invalid value: %+v", m[1], nonsense)
		}
	}
	if len(keys) != 11 || !slices.Contains(keys, "allowed-delay") {
		t.Errorf("unexpected annotations: %v", keys)
	}
	if !strings.Contains(string(text), "local GRACE = "+strconv.Itoa(slurm.Grace)+" ") {
		t.Errorf("the script does not use a delay of %d s", slurm.Grace)
	}
}
