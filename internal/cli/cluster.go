package cli

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/client-go/tools/pager"
)

// clusterFlags say which cluster is meant, as kubectl's flags of these names do.
type clusterFlags struct {
	kubeconfig, context, namespace string
}

func (f *clusterFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig file (default: $KUBECONFIG, then ~/.kube/config, then the pod's own account)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current one)")
}

func (f *clusterFlags) addNamespace(flags *pflag.FlagSet, usage string) {
	flags.StringVarP(&f.namespace, "namespace", "n", "", usage)
}

// A client may ask more often than client-go's five times a second: these commands end, and the API server has a
// fairness of its own.
const (
	clientQPS     = 200
	clientBurst   = 200
	clientTimeout = 30 * time.Second
)

// config returns how to reach the cluster, and the namespace that holds where none is said.
func (f *clusterFlags) config(t terminal) (config *rest.Config, namespace string, err error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: f.kubeconfig, Precedence: t.kubeconfigs()}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	overrides.Context.Namespace = f.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err = loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && t.getenv("KUBECONFIG") != "" && !anyExists(t.kubeconfigs()):
		return nil, "",
			invalidUsage(fmt.Errorf(
				"no cluster is configured: KUBECONFIG is %q, and there is no such file: mend it, or give --kubeconfig",
				t.getenv("KUBECONFIG")))
	case clientcmd.IsEmptyConfig(err):
		return nil, "", invalidUsage(errors.New("no cluster is configured: give --kubeconfig, or set KUBECONFIG"))
	case err != nil:
		return nil, "", invalidUsage(fmt.Errorf("reading the kubeconfig: %s", oneLine(err)))
	}
	if namespace, _, err = loader.Namespace(); err != nil {
		return nil, "", invalidUsage(fmt.Errorf("reading the kubeconfig: %s", oneLine(err)))
	}
	config.QPS, config.Burst, config.Timeout = clientQPS, clientBurst, clientTimeout
	config.UserAgent = "kubenergy/" + version()
	config.WarningHandler = rest.NewWarningWriter(t.err, rest.WarningWriterOptions{Deduplicate: true})
	return config, namespace, nil
}

// cluster is what talks to a cluster.
type cluster struct {
	kubernetes.Interface
	config    *rest.Config
	namespace string // that holds where none is said
}

// open returns the cluster that is meant.
func (f *clusterFlags) open(t terminal) (*cluster, error) {
	config, namespace, err := f.config(t)
	if err != nil {
		return nil, err
	}
	client, err := clients(config)
	return &cluster{client, config, namespace}, err
}

// clients returns what talks to the cluster through config.
func clients(config *rest.Config) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, invalidUsage(fmt.Errorf("reading the kubeconfig: %s", oneLine(err)))
	}
	return client, nil
}

// eachItem hands over the objects of a list, which is read page by page.
func eachItem[L, T runtime.Object](ctx context.Context, options metav1.ListOptions,
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

// kubeconfigs are the files that kubectl would read.
func (t terminal) kubeconfigs() []string {
	if files := t.getenv("KUBECONFIG"); files != "" {
		return filepath.SplitList(files)
	}
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if home := t.getenv(name); home != "" {
			return []string{filepath.Join(home, ".kube", "config")}
		}
	}
	return nil
}

func (t terminal) getenv(name string) string {
	for _, v := range t.env {
		if key, value, _ := strings.Cut(v, "="); key == name {
			return value
		}
	}
	return ""
}

// oneLine is what an error says, without line ends.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
