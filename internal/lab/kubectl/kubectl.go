// Package kubectl provides kubectl as a command of the lab's binary, so that it does not have to be installed
// separately. By default it uses the lab running in the current directory. It is a separate package so that only
// this binary links it.
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
	_ "k8s.io/client-go/plugin/pkg/client/auth" // authentication plugins, as in kubectl
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// Home is the directory of a lab started in the current directory.
var Home = filepath.Join("out", "lab", "cluster")

// New returns the command. isRunning reports whether a lab is running in a directory. linked is set if the program
// was invoked as kubectl. The command exits the process if kubectl fails, like kubectl does.
func New(linked bool, isRunning func(home string) bool) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl",
		Short:              "Run kubectl, by default on the lab running in this directory",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := chooseCluster(args, linked, isRunning); err != nil {
				return err
			}
			return run(args)
		},
	}
}

func run(args []string) error {
	signal.Reset(os.Interrupt, syscall.SIGTERM) // kubectl does not use our context
	os.Args = append([]string{"kubectl"}, args...)
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		return err
	}
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints the error and exits
	}
	return nil
}

// chooseCluster configures kubectl to use the lab running in this directory, unless the user specifies a cluster.
// Without a lab, the link kubectl behaves like kubectl, because it may be first in PATH. kubenergy-lab kubectl
// returns an error instead, because commands for a lab must not be applied to a real cluster.
func chooseCluster(args []string, linked bool, isRunning func(home string) bool) error {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" || namesCluster(args) {
		return nil
	}
	if kubeconfig := filepath.Join(Home, "kubeconfig"); exists(kubeconfig) && isRunning(Home) {
		return os.Setenv(clientcmd.RecommendedConfigPathEnvVar, kubeconfig)
	}
	switch {
	case !needsCluster(args), linked && exists(clientcmd.RecommendedHomeFile):
		return nil
	case linked:
		return fmt.Errorf("no lab is running in this directory (%s), KUBECONFIG is not set, and %s is missing: "+
			"start a lab with kubenergy-lab up, or specify a file with --kubeconfig", Home,
			clientcmd.RecommendedHomeFile)
	}
	return fmt.Errorf("no lab is running in this directory (%s), and KUBECONFIG is not set: start a lab with "+
		"kubenergy-lab up, or specify a file with --kubeconfig", Home)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func namesCluster(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return slices.Contains([]string{"--kubeconfig", "--server", "-s"}, name)
	})
}

// needsCluster reports whether a command requires a cluster, unlike e.g. help and completion.
func needsCluster(args []string) bool {
	local := []string{"--help", "-h", "--client", "--client=true"}
	return len(args) > 0 && !slices.Contains([]string{
		"help", "completion", "config", "options", "kustomize", "plugin",
	}, args[0]) && !slices.ContainsFunc(args, func(a string) bool { return slices.Contains(local, a) })
}
