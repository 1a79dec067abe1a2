// Command test-cluster is what the Rust tests take for a cluster: a real etcd, a real kube-apiserver and, where asked
// for, the controllers that make EndpointSlices, in one process on the loopback interface. See README.md.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"golang.org/x/sync/errgroup"
)

func main() {
	if err := answer(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "test-cluster:", err)
		os.Exit(1)
	}
	dir := flag.String("dir", "", "where everything is kept; started there again, the cluster has its objects again")
	port := flag.Int("port", 0, "port of the API server on 127.0.0.1; 0 is any that is free")
	controllers := flag.Bool("controllers", false, "make EndpointSlices of Pods, and of Endpoints")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "test-cluster --dir DIR [--port N] [--controllers] [-- KUBE-APISERVER FLAGS]")
		fmt.Fprintln(flag.CommandLine.Output(), "test-cluster template [--set KEY=VALUE]... CHART")
		fmt.Fprintln(flag.CommandLine.Output(), "test-cluster kube-proxy")
		fmt.Fprintln(flag.CommandLine.Output(), "test-cluster run-kube-proxy KUBE-PROXY FLAGS")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *dir == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*dir, *port, *controllers, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "test-cluster:", err)
		os.Exit(1)
	}
}

// answer is for what needs no cluster, and ends the process then.
func answer(arguments []string) (err error) {
	switch {
	case len(arguments) > 0 && arguments[0] == "template":
		err = template(arguments[1:], os.Stdout)
	case len(arguments) > 0 && arguments[0] == "kube-proxy":
		err = tell(os.Stdout)
	case len(arguments) > 0 && arguments[0] == "run-kube-proxy":
		runProxy(arguments[1:])
	default:
		return nil
	}
	if err == nil {
		os.Exit(0)
	}
	return err
}

// run serves until SIGTERM or SIGINT.
func run(dir string, port int, controllers bool, serverFlags []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// All paths are relative from here on: those of the sockets would be too long otherwise.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	etcd, err := startEtcd()
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer etcd.Close()
	go obey(os.Stdin, etcd.Server)

	token, err := makeSecrets()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return serve(ctx, listener, serverFlags) })
	tasks.Go(func() error {
		administrator := administrator("https://"+listener.Addr().String(), token)
		client, err := waitReady(ctx, administrator)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(administrator); err != nil {
			return err
		}
		fmt.Println("ready", administrator.Host)
		if controllers {
			runControllers(ctx, client)
		}
		return nil
	})
	return tasks.Wait()
}

// obey carries out what is written to the standard input. When that closes, whoever started this is gone, and the
// process goes as well, at once.
func obey(input io.Reader, etcd *etcdserver.EtcdServer) {
	for lines := bufio.NewScanner(input); lines.Scan(); {
		switch lines.Text() {
		case "compact":
			revision, err := compact(etcd)
			if err != nil {
				fmt.Println("failed:", err)
				continue
			}
			fmt.Println("compacted", revision)
		default:
			fmt.Printf("failed: no such command: %q\n", lines.Text())
		}
	}
	os.Exit(0)
}
