// Package kubectl is kubectl, as a command of the lab's binary: nothing else has to be installed, and what it talks to
// by default is the lab. It is a package of its own so that only that binary links it.
package kubectl

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // as in kubectl, for kubeconfigs of real clusters
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// Kubeconfig is that of a lab that was started in the present folder.
var Kubeconfig = filepath.Join("out", "lab", "cluster", "kubeconfig")

// New returns the command. It ends the process when kubectl fails, as kubectl does.
func New() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl",
		Short:              "Run kubectl, by default on the lab that was started in this folder",
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return run(args) },
	}
}

func run(args []string) error {
	if err := chooseCluster(args); err != nil {
		return err
	}
	signal.Reset(os.Interrupt, syscall.SIGTERM) // kubectl knows nothing of our context
	os.Args = append([]string{"kubectl"}, args...)
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		return err
	}
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // says what is wrong and exits
	}
	return nil
}

// chooseCluster points kubectl to the lab unless the user says which cluster is meant. It never falls back to
// ~/.kube/config: what is typed at a lab's command should not happen to a real cluster.
func chooseCluster(args []string) error {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" || namesCluster(args) {
		return nil
	}
	if _, err := os.Stat(Kubeconfig); err != nil && needsCluster(args) {
		return fmt.Errorf(
			"there is no lab in this folder (%s is missing): start one with kubenergy-lab up, or set KUBECONFIG",
			Kubeconfig)
	}
	return os.Setenv(clientcmd.RecommendedConfigPathEnvVar, Kubeconfig)
}

func namesCluster(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		return a == "--kubeconfig" || strings.HasPrefix(a, "--kubeconfig=")
	})
}

// needsCluster reports whether a command line does more than show help or make completions.
func needsCluster(args []string) bool {
	for _, a := range args {
		if a == "--help" || a == "-h" || a == "--client" || a == "--client=true" {
			return false
		}
	}
	return len(args) > 0 && !slices.Contains([]string{"help", "completion", "options", "kustomize", "plugin"}, args[0])
}
