package slurm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestEpilogReadsItsOwnJob verifies that the Epilog, which runs as root, parses the output of scontrol and sacct
// correctly, for the last task of an array and for malicious job names.
func TestEpilogReadsItsOwnJob(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(kit.Root, "deploy", "slurm", "kubenergy-epilog.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"sh", "bash"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip(err)
			}
			dir := t.TempDir()
			for name, content := range map[string]string{
				"epilog.sh":   string(text),
				"epilog.conf": "SERVER=https://localhost TOKEN=token CA=ca KUBENERGY=kubenergy\n",
				"scontrol": `#!/bin/sh
cat <<'END'
JobId=101 ArrayJobId=100 ArrayTaskId=1 JobName=x
   StartTime=1790000000+a[$(touch${IFS}` + dir + `/ran)]
   StartTime=1700000000 EndTime=1700000060 Deadline=N/A

JobId=100 ArrayJobId=100 ArrayTaskId=2 JobName=x
   StartTime=1790000000+a[$(touch${IFS}` + dir + `/ran)]
   StartTime=1790000000 EndTime=1790000060 Deadline=N/A

END
`,
				"sacct": `#!/bin/sh
case $* in
*JobIDRaw*) printf '101.0|900\n100.batch|70\n100.0|80\n' ;;
*) printf '900\n70\n80\n' ;;
esac
`,
				"kubenergy": "#!/bin/sh\necho $* > " + dir + "/asked\nprintf 'node,energy_kwh\\n'\n",
			} {
				if err := os.Chmod(kit.Write(t, filepath.Join(dir, name), content), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.Command(shell, filepath.Join(dir, "epilog.sh"), "100")
			c.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
			said, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(said), "Slurm counted 80 J") {
				t.Errorf("unexpected output %q: %v", said, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("a command in the job's name was executed")
			}
			asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
			if want := "--from 2026-09-21T14:03:20Z"; !strings.Contains(string(asked), want) {
				t.Errorf("unexpected query %q, want %s", asked, want)
			}
		})
	}
}

// TestCountersForSlurm verifies the conversion of the agent's energy counter to the files that Slurm reads, which
// contain energy and power.
func TestCountersForSlurm(t *testing.T) {
	script := filepath.Join(kit.Root, "deploy", "slurm", "pm-counters.sh")
	dir := t.TempDir()
	folder := filepath.Join(dir, "counters")
	for name, content := range map[string]string{
		"sleep": "#!/bin/sh\nread n < " + dir + "/n\necho $((n + 1)) > " + dir + "/n\n[ $n -lt 4 ]\n",
		"date":  "#!/bin/sh\nread n < " + dir + "/n\necho 179000000${n}000000\n",
		"curl": `#!/bin/sh
read n < ` + dir + `/n
[ $n -lt 3 ] && joules=100.5 || joules=300.5
echo '# TYPE kubenergy_node_energy_joules_total counter'
echo 'kubenergy_node_energy_joules_total{source="rapl",quality="measured"} '$joules
echo 'kubenergy_node_energy_joules_total{source="model",quality="estimated"} 100'
`,
	} {
		if err := os.Chmod(kit.Write(t, filepath.Join(dir, name), content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	kit.Write(t, filepath.Join(dir, "n"), "0\n")
	c := exec.Command(script, "feed", folder, "http://localhost/metrics")
	c.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for name, want := range map[string]string{
		"energy": "400 J 1790000004000000 us\n", "power": "100 W 1790000004000000 us\n",
	} {
		if text, err := os.ReadFile(filepath.Join(folder, name)); string(text) != want {
			t.Errorf("content of %s = %q, want %q: %v", name, text, want, err)
		}
	}
}
