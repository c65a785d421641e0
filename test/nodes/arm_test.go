//go:build linux

package nodes

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
)

// emulator returns the path of a QEMU user-mode emulator, which is either installed or has been unpacked by make
// e2e-nodes.
func emulator(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join(kit.Root, "out", "qemu", "usr", "bin", name))
}

// testArchitectures runs the images for other architectures with an emulator that is mounted into the container.
// Registering the emulator with the kernel would modify this machine.
func (w *world) testArchitectures(t *testing.T) {
	for _, c := range []struct{ platform, emulator, images string }{
		{"linux/arm64", "qemu-aarch64-static", strings.Join(images, " ")},
		{"linux/arm/v7", "qemu-arm-static", "kubenergy-agent"},
	} {
		t.Run(c.platform, func(t *testing.T) {
			path, err := emulator(c.emulator)
			if err != nil {
				t.Skip("emulator not found (Debian: apt-get install qemu-user-static): ", err)
			}
			ctr := func(args ...string) string {
				t.Helper()
				args = append([]string{"--address", filepath.Join(w.nodes[0].Dir, "containerd.sock"), "-n", "arm"}, args...)
				out, err := exec.CommandContext(t.Context(), "ctr", args...).CombinedOutput()
				if err != nil {
					t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
				}
				return string(out)
			}
			for image := range strings.FieldsSeq(c.images) {
				ctr("images", "import", "--snapshotter", "native", "--platform", c.platform, archive(image))
				said := ctr("run", "--rm", "--snapshotter", "native", "--platform", c.platform, "--read-only",
					"--fifo-dir", w.nodes[0].Dir, // visible to both
					"--mount", "type=bind,src="+path+",dst=/etc/group,options=rbind:ro", // replaces a file of the image
					registry+"/"+image+":"+tag, "arm", "/etc/group", "/"+image, "--help")
				if !strings.Contains(said, "\n  -") {
					t.Errorf("unexpected output of %s for %s: %s", image, c.platform, said)
				}
				t.Logf("%s for %s: %d bytes of help", image, c.platform, len(said))
			}
		})
	}
}
