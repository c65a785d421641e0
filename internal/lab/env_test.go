package lab

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestEnv evaluates the output of the command in a shell, with a directory name that requires quoting.
func TestEnv(t *testing.T) {
	dir := filepath.Join(kit.Dir(t, "env"), "a lab's $HOME")
	home := filepath.Join(dir, clusterName)
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	env := func(more ...string) (stdout, stderr string, code int) {
		var out, complaints bytes.Buffer
		code = Main(t.Context(), append([]string{"env", "--dir", dir}, more...), &out, &complaints)
		return out.String(), complaints.String(), code
	}
	refused := func(when string) {
		t.Helper()
		if out, complaint, code := env(); code != 2 || out != "" ||
			!strings.Contains(complaint, "no lab is ready in "+dir+": start one with kubenergy-lab up") {
			t.Errorf("%s: exit code %d, %s%s", when, code, out, complaint)
		}
	}
	ready := filepath.Join(home, readyName)
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a previous lab")
	l, err := net.Listen("unix", filepath.Join(home, "etcd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Remove(ready); err != nil {
		t.Fatal(err)
	}
	refused("a lab that is starting")
	time.AfterFunc(300*time.Millisecond, func() { _ = os.WriteFile(ready, nil, 0o600) }) // awaited
	lines, complaint, code := env("--wait", "1m")
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, complaint)
	}
	shown, err := exec.CommandContext(t.Context(), "sh", "-c", lines+`echo "$KUBECONFIG"; echo "$PATH"`).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, lines)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(home, kubeconfigName) + "\n" + filepath.Dir(binary) + ":" + os.Getenv("PATH") + "\n"
	if string(shown) != want {
		t.Errorf("output of the shell =\n%s\nwant\n%s", shown, want)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", path+":"+filepath.Dir(binary))
	if later, _, _ := env(); !strings.Contains(later, "PATH=") {
		t.Errorf("PATH is not set although other directories precede the one of the program:\n%s", later)
	}
	t.Setenv("PATH", filepath.Dir(binary)+":"+path)
	if again, _, _ := env(); strings.Contains(again, "PATH=") {
		t.Errorf("PATH is extended a second time:\n%s", again)
	}
}
