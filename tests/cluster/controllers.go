package main

import (
	"context"
	"sync"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/endpointslicemirroring"
)

// As in kube-controller-manager, whose defaults these are.
const (
	endpointsPerSlice  = 100
	endpointsPerSubset = 1000
	workers            = 5
)

// runControllers makes the EndpointSlices of Services, until ctx ends: those of Services with a selector from Pods, the
// others from Endpoints.
func runControllers(ctx context.Context, client kubernetes.Interface) {
	factory := informers.NewSharedInformerFactory(client, 0)
	core, slices := factory.Core().V1(), factory.Discovery().V1().EndpointSlices()
	selecting := endpointslice.NewController(
		ctx, core.Pods(), core.Services(), core.Nodes(), slices, endpointsPerSlice, client, 0)
	mirroring := endpointslicemirroring.NewController(
		ctx, core.Endpoints(), slices, core.Services(), endpointsPerSubset, client, 0)
	factory.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { selecting.Run(ctx, workers) })
	running.Go(func() { mirroring.Run(ctx, workers) })
	running.Wait()
}
