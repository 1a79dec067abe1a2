package main

import (
	"context"
	"net"

	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// baseFlags are those of every server. The certificate of the server is made by itself, in the working directory.
var baseFlags = []string{
	"--etcd-servers=" + etcdURL,
	"--cert-dir=.",
	"--bind-address=127.0.0.1",
	// What the Service default/kubernetes leads to, which may not be a loopback address.
	"--advertise-address=192.0.2.1",
	"--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
	"--authorization-mode=RBAC",
	"--anonymous-auth=false",
	"--token-auth-file=" + tokenFile,
	"--service-account-issuer=https://kubernetes.default.svc",
	"--service-account-signing-key-file=" + serviceAccountKeyFile,
	"--service-account-key-file=" + serviceAccountKeyFile,
	// Nobody makes the service accounts that it would ask of every Pod.
	"--disable-admission-plugins=ServiceAccount",
}

// serve is kube-apiserver, until ctx ends.
func serve(ctx context.Context, listener net.Listener, flags []string) error {
	server := options.NewServerRunOptions()
	all := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range server.Flags().FlagSets {
		all.AddFlagSet(set)
	}
	if err := all.Parse(append(append([]string{}, baseFlags...), flags...)); err != nil {
		return err
	}
	server.SecureServing.Listener = listener
	server.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	if err := server.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	completed, err := server.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return errs[0]
	}
	return app.Run(ctx, completed)
}
