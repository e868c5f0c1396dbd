/* SPDX-License-Identifier: MIT
 *
 * A child asks the driver, whose threads and descriptors go with it: kolorun stays a process of one
 * thread, and ranks inherit nothing of it.
 */
#include "launch.h"

#include "cuda_driver.h"
#include "kolo.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int read_count(int *count)
{
    const struct ko_cuda *cuda;
    int err = ko_cuda_open(&cuda);

    return err ? err : ko_cuda_check(cuda, cuda->device_count(count), "no count of GPUs");
}

static _Noreturn void run_child(int fd)
{
    struct ko_gpu_count gpus = {.count = 0};

    if (read_count(&gpus.count))
        snprintf(gpus.reason, sizeof gpus.reason, "%s", kolo_last_error());
    _exit(write(fd, &gpus, sizeof gpus) == sizeof gpus ? 0 : 1);
}

void ko_gpus_count(struct ko_gpu_count *gpus)
{
    int fds[2];
    pid_t pid;

    *gpus = (struct ko_gpu_count){.reason = "the driver was not asked"};
    if (pipe2(fds, O_CLOEXEC))
        return;
    pid = fork();
    if (pid == 0)
        run_child(fds[1]);
    close(fds[1]);
    if (pid > 0 && read(fds[0], gpus, sizeof *gpus) != sizeof *gpus)
        *gpus = (struct ko_gpu_count){.reason = "the driver ended the process that asked it"};
    close(fds[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
}
