/* SPDX-License-Identifier: MIT
 *
 * The double's graphs: lists of operations, which a launch puts into a stream.
 */
#include "double.h"

#include <stdlib.h>
#include <string.h>

/* Operations, in the order in which they came. */
struct ko_cuda_graph {
    size_t n;
    struct {
        struct double_task *task;
        size_t nbytes;
    } tasks[];
};

ko_cu_graph double_graph_new(void)
{
    return calloc(1, sizeof(struct ko_cuda_graph));
}

void double_graph_add(ko_cu_graph *graph, const struct double_task *task, size_t nbytes)
{
    const size_t n = (*graph)->n;
    ko_cu_graph longer = realloc(*graph, sizeof *longer + (n + 1) * sizeof longer->tasks[0]);

    longer->tasks[n].task = malloc(nbytes);
    memcpy(longer->tasks[n].task, task, nbytes);
    longer->tasks[n].nbytes = nbytes;
    longer->n++;
    *graph = longer;
}

static ko_cu_graph copy_graph(const struct ko_cuda_graph *graph)
{
    const size_t nbytes = sizeof *graph + graph->n * sizeof graph->tasks[0];
    ko_cu_graph copy = malloc(nbytes);

    memcpy(copy, graph, nbytes);
    for (size_t i = 0; i < copy->n; i++) {
        copy->tasks[i].task = malloc(copy->tasks[i].nbytes);
        memcpy(copy->tasks[i].task, graph->tasks[i].task, copy->tasks[i].nbytes);
    }
    return copy;
}

ko_cu_result double_graph_prepare(ko_cu_graph_exec *exec, ko_cu_graph graph,
                                  unsigned long long flags)
{
    if (!graph || flags)
        return KO_CU_INVALID_VALUE;
    *exec = (ko_cu_graph_exec)copy_graph(graph);
    return KO_CU_SUCCESS;
}

ko_cu_result double_graph_launch(ko_cu_graph_exec exec, ko_cu_stream stream)
{
    const struct ko_cuda_graph *graph = (const struct ko_cuda_graph *)exec;
    ko_cu_result result = graph ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;

    for (size_t i = 0; !result && i < graph->n; i++)
        result = double_enqueue(stream, graph->tasks[i].task, graph->tasks[i].nbytes);
    return result;
}

ko_cu_result double_graph_destroy(ko_cu_graph graph)
{
    for (size_t i = 0; i < graph->n; i++)
        free(graph->tasks[i].task);
    free(graph);
    return KO_CU_SUCCESS;
}

ko_cu_result double_graph_exec_destroy(ko_cu_graph_exec exec)
{
    return double_graph_destroy((ko_cu_graph)exec);
}
