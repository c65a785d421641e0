package cli

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/release"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/power"
)

const stopPause = 5 * time.Second

type wakeFlags struct {
	cmdutil.ClusterFlags
	all, stop    bool
	config, keys string
	timeout      time.Duration
}

func newWake(t cmdutil.Terminal) *cobra.Command {
	var f wakeFlags
	cmd := &cobra.Command{
		Use:   "wake NODE | --all",
		Short: "Wake up machines that are asleep, even if KubEnergy is not running",
		Long: `Wake up one or all machines that are asleep, and remove the taint and the labels of kubenergy-power
from their nodes. The command sends requests to the management controllers of the machines directly. Their addresses
and keys are read from the ConfigMap kubenergy-power and its Secret, or from files. If kubenergy-power is running, it
may put the machines to sleep again. Use --stop to scale it down before, as an uninstallation does.`,
		Example: `  kubenergy wake worker-7
  kubenergy wake --all --stop
  kubenergy wake --all --config machines.yaml --keys-dir keys   # if the ConfigMap was deleted`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), t, args) },
	}
	f.Add(cmd.Flags(), "")
	cmd.Flags().BoolVar(&f.all, "all", false, "wake up all machines that are asleep")
	cmd.Flags().BoolVar(&f.stop, "stop", false, "scale the Deployment kubenergy-power to 0 replicas first")
	cmd.Flags().StringVar(&f.config, "config", "", "`file` with the machines, instead of the ConfigMap")
	cmd.Flags().StringVar(&f.keys, "keys-dir", "", "`folder` with a file per passwordKey, instead of the Secret")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 5*time.Minute, "maximum duration of the command")
	return cmd
}

func (f *wakeFlags) run(ctx context.Context, t cmdutil.Terminal, args []string) error {
	switch {
	case f.timeout <= 0:
		return cmdutil.UsageErrorf("--timeout is %v: want more than 0", f.timeout)
	case f.all == (len(args) > 0) || len(args) > 1:
		return cmdutil.UsageErrorf("want the name of one node or --all")
	}
	c, err := f.Open(t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if !f.stop {
		return f.wake(ctx, t, c, args)
	}
	scale := func(ctx context.Context, replicas int) error {
		_, err := c.AppsV1().Deployments(v1alpha1.SystemNamespace).Patch(ctx, power.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{}, "scale")
		return cmdutil.IgnoreNotFound(err)
	}
	if err := scale(ctx, 0); err != nil {
		return fmt.Errorf("scaling down Deployment %s: %s", power.Name, cmdutil.Because(err))
	}
	kube.Pause(ctx, stopPause) // wait until its replicas have exited, because they could put machines to sleep again
	err = f.wake(ctx, t, c, args)
	if err != nil { // machines that are still asleep may be needed
		if err := scale(context.WithoutCancel(ctx), power.Replicas); err != nil {
			fmt.Fprintf(t.Err, "kubenergy: scaling up Deployment %s: %s\n", power.Name, cmdutil.Because(err))
		}
	}
	return err
}

// wake wakes up the machine of the given node, or all machines.
func (f *wakeFlags) wake(ctx context.Context, t cmdutil.Terminal, c *cmdutil.Cluster, args []string) error {
	certificates, err := os.MkdirTemp("", "kubenergy-wake-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(certificates)
	config, keys, err := f.machines(ctx, c, certificates)
	if err != nil {
		return err
	}
	switches, err := power.NewSwitches(config.Machines, keys, true) // tunnels end on this machine
	if err != nil {                                                 // the other machines can be woken up
		fmt.Fprintf(t.Err, "kubenergy: %s\n", cmdutil.OneLine(err))
	}
	woken := 0
	w := &power.Waker{
		Client: c, Switches: switches, Clock: t.Now, Pause: release.Pause,
		Say: func(node, what string) {
			woken++
			fmt.Fprintf(t.Out, "node %s: %s\n", node, what)
		}, Limit: power.WakeLimit(&config.Policy.Policy),
	}
	if err := w.Wake(ctx, strings.Join(args, "")); err != nil {
		return fmt.Errorf("%s woken up, others failed: %s", humanize.Count(woken, "machine"), cmdutil.OneLine(err))
	}
	none := ""
	if f.all {
		none = ", no machine is asleep"
	}
	_, err = fmt.Fprintf(t.Out, "%s woken up%s\n", humanize.Count(woken, "machine"), none)
	return err
}

// machines returns the machines and their keys from files or from the cluster. Certificates of the Secret are
// written to the given directory.
func (f *wakeFlags) machines(ctx context.Context, c *cmdutil.Cluster, certificates string,
) (config power.Config, keys dial.KeyReader, err error) {
	var text []byte
	if f.config != "" {
		if text, err = os.ReadFile(f.config); err != nil {
			return config, nil, cmdutil.NewUsageError(err)
		}
	} else {
		m, err := c.CoreV1().ConfigMaps(v1alpha1.SystemNamespace).Get(ctx, power.Name, metav1.GetOptions{})
		if err != nil {
			return config, nil, fmt.Errorf("reading ConfigMap %s (set --config to use a file): %s", power.Name,
				cmdutil.Because(err))
		}
		text = []byte(m.Data["machines.yaml"])
	}
	if config, err = power.ParseConfig(text); err != nil {
		return config, nil, cmdutil.NewUsageError(err)
	}
	if f.keys != "" || config.KeysSecret == "" {
		mountedAt(config.Machines, f.keys)
		return config, signal.KeyFolder(f.keys), nil
	}
	s, err := c.CoreV1().Secrets(v1alpha1.SystemNamespace).Get(ctx, config.KeysSecret, metav1.GetOptions{})
	if err != nil {
		return config, nil, fmt.Errorf("reading Secret %s (set --keys-dir to use files): %s", config.KeysSecret,
			cmdutil.Because(err))
	}
	for _, file := range mountedAt(config.Machines, certificates) {
		if err := os.WriteFile(file, s.Data[filepath.Base(file)], 0o600); err != nil {
			return config, nil, err
		}
	}
	return config, secretKeys(s.Data), nil
}

// mountedAt changes the paths of certificates that are mounted in kubenergy-power to the given directory and
// returns these paths.
func mountedAt(machines []power.Machine, folder string) (files []string) {
	for i := range machines {
		if m := &machines[i]; filepath.Dir(m.CAFile) == power.KeysDir {
			m.CAFile = filepath.Join(folder, filepath.Base(m.CAFile))
			files = append(files, m.CAFile)
		}
	}
	return files
}

// secretKeys implements [dial.KeyReader] with the data of a Secret.
type secretKeys map[string][]byte

// Key implements [dial.KeyReader].
func (k secretKeys) Key(name string) (string, error) {
	key, ok := k[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return strings.TrimSpace(string(key)), nil
}
