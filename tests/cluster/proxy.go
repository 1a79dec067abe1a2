package main

import (
	"io"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

// runProxy is kube-proxy until it ends, or until the standard input closes.
func runProxy(flags []string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	command := app.NewProxyCommand()
	command.SetArgs(flags)
	os.Exit(cli.Run(command))
}
