package libvirt

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A domain contains the elements of a libvirt domain that are checked.
type domain struct {
	Name   string `xml:"name"`
	Memory struct {
		Source struct {
			Type string `xml:"type,attr"`
		} `xml:"source"`
		Access struct {
			Mode string `xml:"mode,attr"`
		} `xml:"access"`
	} `xml:"memoryBacking"`
	Filesystems []struct {
		Type       string `xml:"type,attr"`
		AccessMode string `xml:"accessmode,attr"`
		Driver     struct {
			Type string `xml:"type,attr"`
		} `xml:"driver"`
		Binary *struct {
			Path  string `xml:"path,attr"`
			Cache struct {
				Mode string `xml:"mode,attr"`
			} `xml:"cache"`
			Sandbox struct {
				Mode string `xml:"mode,attr"`
			} `xml:"sandbox"`
		} `xml:"binary"`
		Source struct {
			Dir    string `xml:"dir,attr"`
			Socket string `xml:"socket,attr"`
		} `xml:"source"`
		Target struct {
			Dir string `xml:"dir,attr"`
		} `xml:"target"`
		ReadOnly *struct{} `xml:"readonly"`
	} `xml:"devices>filesystem"`
}

func read(t *testing.T, file string) domain {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d domain
	if err := xml.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if d.Name == "" || len(d.Filesystems) != 1 {
		t.Fatalf("%s: the machine %q has %d file systems", file, d.Name, len(d.Filesystems))
	}
	return d
}

func TestDomains(t *testing.T) {
	mount, err := os.ReadFile("../systemd/var-scaphandre.mount")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := os.ReadFile("../systemd/virtiofsd@.socket")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"domain.xml", "domain-socket.xml"} {
		d := read(t, file)
		fs := d.Filesystems[0]
		wrong := func(what string) { t.Errorf("%s: %s", file, what) }
		if d.Memory.Source.Type != "memfd" || d.Memory.Access.Mode != "shared" {
			wrong("the memory of the guest is not shared with virtiofsd")
		}
		if fs.Type != "mount" || fs.Driver.Type != "virtiofs" {
			wrong("the file system is not virtiofs")
		}
		if !strings.Contains(string(mount), "\nWhat="+fs.Target.Dir+"\n") {
			wrong("the mount unit of the guest does not use the tag " + fs.Target.Dir)
		}
		if fs.Source.Socket != "" {
			if want := "ListenStream=" + strings.Replace(fs.Source.Socket, d.Name, "%i",
				1); !strings.Contains(string(socket), "\n"+want+"\n") {
				wrong("no unit listens on " + fs.Source.Socket)
			}
			continue
		}
		if fs.AccessMode != "passthrough" || fs.Source.Dir != "/run/kubenergy/guests/"+d.Name {
			wrong("unexpected shared directory " + fs.Source.Dir)
		}
		if fs.Binary == nil || fs.Binary.Cache.Mode != "none" || fs.Binary.Sandbox.Mode != "namespace" ||
			fs.Binary.Path != "/usr/libexec/virtiofsd" {
			wrong("the guest may cache files, or virtiofsd has no sandbox")
		}
		if fs.ReadOnly == nil {
			wrong("the file system is writable by the guest")
		}
	}
}

// TestDomainsAreValid validates the domains with the schemas of the installed libvirt.
func TestDomainsAreValid(t *testing.T) {
	schema := "/usr/share/libvirt/schemas/domain.rng"
	if _, err := os.Stat(schema); err != nil {
		t.Skip("needs libvirt's schemas: ", err)
	}
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("needs xmllint: ", err)
	}
	for _, file := range []string{"domain.xml", "domain-socket.xml"} {
		if out, err := exec.CommandContext(t.Context(), xmllint, "--noout", "--relaxng", schema,
			file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	// The schema must reject an invalid value.
	text, err := os.ReadFile("domain.xml")
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.xml")
	if err := os.WriteFile(bad, []byte(strings.Replace(string(text), "mode='none'", "mode='never'", 1)),
		0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), xmllint, "--noout", "--relaxng", schema,
		bad).CombinedOutput(); err == nil {
		t.Errorf("the schema accepts an invalid cache mode:\n%s", out)
	}
}

func TestHook(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs a shell: ", err)
	}
	const hook = "hooks/qemu.d/kubenergy"
	if info, err := os.Stat(hook); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("the hook is not executable, so libvirt would ignore it: %v", err)
	}
	root := t.TempDir()
	dir := filepath.Join(root, "kubenergy", "guests")
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), sh, append([]string{hook}, args...)...)
		cmd.Env = append(os.Environ(), "KUBENERGY_GUESTS_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q: %v: the machine would not start\n%s", args, err, out)
		}
	}
	for _, other := range []string{"start", "started", "stopped", "release"} {
		run("web-1", other, "begin", "-")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the hook created a directory for other operations")
	}
	run("web-1", "prepare", "begin", "-")
	run("web-1", "prepare", "begin", "-")
	for _, name := range []string{"", ".", "..", "../outside", "a b", ".staging", "-p", "$(touch x)", "a\nb", "é"} {
		run(name, "prepare", "begin", "-")
	}
	if err := os.Symlink(root, filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	run("linked", "prepare", "begin", "-")
	var made []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		made = append(made, e.Name())
	}
	if got := strings.Join(made, " "); got != "linked web-1" {
		t.Errorf("created %q, want only linked and web-1", got)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "web-1"): 0o755} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, error %v", path, info.Mode(), err)
		}
	}
	// The hook must also succeed if it cannot create the directory.
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(root, "file", "guests")
	run("web-1", "prepare", "begin", "-")
}
