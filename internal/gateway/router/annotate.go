package router

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/audit"
)

// What audit records say about where a request went.
const (
	cellAnnotation  = "cellplane.io/cell"
	epochAnnotation = "cellplane.io/epoch"
)

var errNoRequestInfo = errors.New("the request was not resolved before it was routed")

// annotate notes in the audit record which control plane took a request.
func annotate(ctx context.Context, cell, epoch string) {
	record := audit.AuditContextFrom(ctx)
	if record == nil {
		return
	}
	if _, noted := record.GetEventAnnotation(cellAnnotation); noted {
		return // a part of a request that has been noted
	}
	audit.AddAuditAnnotation(ctx, cellAnnotation, cell)
	if epoch != "" {
		audit.AddAuditAnnotation(ctx, epochAnnotation, epoch)
	}
}
