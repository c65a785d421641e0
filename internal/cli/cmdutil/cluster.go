package cmdutil

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/pager"
)

// ClusterFlags select a cluster, like the flags of kubectl with the same names.
type ClusterFlags struct {
	Kubeconfig, Context, Namespace string

	Offline string // an alternative without a cluster for errors, e.g. ", or use --file"
}

// Add adds the flags --kubeconfig and --context to a flag set, and --namespace, -n for short, with the given help text
// unless it is empty.
func (f *ClusterFlags) Add(flags *pflag.FlagSet, namespace string) {
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "",
		"path to the kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the service account of the pod)")
	flags.StringVar(&f.Context, "context", "", "context of the kubeconfig (default: current context)")
	if namespace != "" {
		flags.StringVarP(&f.Namespace, "namespace", "n", "", namespace)
	}
}

// Client limits. They exceed the default of client-go, because commands are short-lived and the API server has its
// own priority and fairness.
const (
	clientQPS     = 200
	clientBurst   = 200
	clientTimeout = 30 * time.Second
)

// Config returns the client configuration of the cluster and the default namespace.
func (f *ClusterFlags) Config(t Terminal) (config *rest.Config, namespace string, err error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: f.Kubeconfig, Precedence: t.kubeconfigs()}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.Context}
	overrides.Context.Namespace = f.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if config, err = loader.ClientConfig(); err == nil {
		namespace, _, err = loader.Namespace()
	}
	switch {
	case clientcmd.IsEmptyConfig(err) && t.Getenv("KUBECONFIG") != "" && !anyExists(t.kubeconfigs()):
		return nil, "", UsageErrorf("no cluster is configured: KUBECONFIG is %q: no such file: correct it or set "+
			"--kubeconfig", t.Getenv("KUBECONFIG"))
	case clientcmd.IsEmptyConfig(err):
		return nil, "", UsageErrorf("no cluster is configured: set --kubeconfig or KUBECONFIG%s, or start a local "+
			"cluster: kubenergy-lab up --stock", f.Offline)
	case err != nil:
		return nil, "", UsageErrorf("reading the kubeconfig: %s", OneLine(err))
	}
	config.QPS, config.Burst, config.Timeout = clientQPS, clientBurst, clientTimeout
	config.UserAgent = "kubenergy/" + Version()
	config.WarningHandler = rest.NewWarningWriter(t.Err, rest.WarningWriterOptions{Deduplicate: true})
	return config, namespace, nil
}

// Cluster is a client of a cluster.
type Cluster struct {
	kubernetes.Interface
	Config    *rest.Config
	Namespace string // default namespace
}

// Open returns a client of the selected cluster.
func (f *ClusterFlags) Open(t Terminal) (*Cluster, error) {
	config, namespace, err := f.Config(t)
	if err != nil {
		return nil, err
	}
	client, err := Clients(config)
	return &Cluster{client, config, namespace}, err
}

// Clients returns a client for the given configuration.
func Clients(config *rest.Config) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, UsageErrorf("reading the kubeconfig: %s", OneLine(err))
	}
	return client, nil
}

// EachItem lists objects page by page and calls take for each one.
func EachItem[L, T runtime.Object](ctx context.Context, options metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (L, error), take func(T),
) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) })
	return pages.EachListItem(ctx, options, func(o runtime.Object) error { take(o.(T)); return nil })
}

func anyExists(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		_, err := os.Stat(path)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// kubeconfigs returns the kubeconfig files that kubectl would read.
func (t Terminal) kubeconfigs() []string {
	if files := t.Getenv("KUBECONFIG"); files != "" {
		return filepath.SplitList(files)
	}
	if home := cmp.Or(t.Getenv("HOME"), t.Getenv("USERPROFILE")); home != "" {
		return []string{filepath.Join(home, ".kube", "config")}
	}
	return nil
}

// Getenv returns the value of the first variable in t.Env that has the given name, or "" if there is none.
func (t Terminal) Getenv(name string) string {
	for _, v := range t.Env {
		if key, value, _ := strings.Cut(v, "="); key == name {
			return value
		}
	}
	return ""
}

// OneLine returns the message of an error in a single line.
func OneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Write writes a kubeconfig that only contains the selected cluster, for the programs started by an experiment.
func (f *ClusterFlags) Write(t Terminal, path string) error {
	if _, _, err := f.Config(t); err != nil {
		return err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: f.Kubeconfig, Precedence: t.kubeconfigs()}
	config, err := rules.Load()
	if err != nil {
		return err
	}
	config.CurrentContext = cmp.Or(f.Context, config.CurrentContext)
	err = errors.Join(clientcmdapi.MinifyConfig(config), clientcmdapi.FlattenConfig(config))
	return cmp.Or(err, clientcmd.WriteToFile(*config, path))
}
