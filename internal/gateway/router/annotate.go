package router

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/audit"
)

// Audit annotations for the destination of a request.
const (
	cellAnnotation  = "cellplane.io/cell"
	epochAnnotation = "cellplane.io/epoch"
)

var errNoRequestInfo = errors.New("the request has no RequestInfo")

// annotate records the control plane that served a request in its audit event.
func annotate(ctx context.Context, cell, epoch string) {
	record := audit.AuditContextFrom(ctx)
	if record == nil {
		return
	}
	if _, noted := record.GetEventAnnotation(cellAnnotation); noted {
		return // this is one of several requests to cells for one of a client
	}
	audit.AddAuditAnnotation(ctx, cellAnnotation, cell)
	if epoch != "" {
		audit.AddAuditAnnotation(ctx, epochAnnotation, epoch)
	}
}
