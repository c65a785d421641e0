package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"PriorityFlags=CALCULATE_RUNNING,ACCRUE_ALWAYS # ages":       "",
		"priorityflags = accrue_always":                              "",
		"PriorityType=priority/basic":                                "",
		strings.Repeat("x", 1<<17) + "\nPriorityFlags=ACCRUE_ALWAYS": "",
		"# PriorityFlags=ACCRUE_ALWAYS":                              "PriorityFlags=ACCRUE_ALWAYS",
		"":                                                           "PriorityFlags=ACCRUE_ALWAYS",
	} {
		file := filepath.Join(t.TempDir(), "slurm.conf")
		if err := os.WriteFile(file, []byte("ClusterName=x\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkConf(file); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := checkConf("/no/slurm.conf"); err == nil || !strings.Contains(err.Error(), "--slurm-conf") {
		t.Errorf("checkConf() of a missing file: %v", err)
	}
	if err := checkConf(""); err != nil {
		t.Error(err)
	}
}
