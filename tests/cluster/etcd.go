package main

import (
	"context"
	"net/url"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// etcdURL is a socket in the working directory, so that no port has to be found for it.
const etcdURL = "unix://etcd.sock"

// startEtcd starts an etcd of one member, which does not wait for the disk.
func startEtcd() (*embed.Etcd, error) {
	// It is set aside twice over, and the usual 64 MB are much for what a test writes.
	wal.SegmentSizeBytes = 4 << 20
	config := embed.NewConfig()
	config.Dir = "etcd"
	config.UnsafeNoFsync = true
	config.LogLevel = "error"
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Host: "etcd.sock"}}
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: "etcd-peer.sock"}}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	<-etcd.Server.ReadyNotify()
	return etcd, nil
}

// compact forgets all history before the present revision, which it returns.
func compact(etcd *etcdserver.EtcdServer) (int64, error) {
	revision := etcd.KV().Rev()
	_, err := etcd.Compact(context.Background(), &pb.CompactionRequest{Revision: revision, Physical: true})
	return revision, err
}
