<#
.SYNOPSIS
Runs modelmill's worker on Windows as a scheduled task: from the start of the machine on, without a
login, started again when it ends, and stopped so that it drains.

.DESCRIPTION
The worker is a console program, and Windows has no SIGTERM: services.msc would refuse it, and the
Task Scheduler ends a program by killing it. So the task runs `python -m deploy.service`, which
looks for a file and hands the worker a Ctrl-C when it appears. -Action Stop makes that file and
waits until the worker has finished its models.

A shutdown of Windows does not wait for that: run -Action Stop before it. A worker that is killed
loses nothing but time: its models are taken over when their leases end.

.EXAMPLE
.\worker.ps1 -Action Install -Python C:\modelmill\Scripts\python.exe -EnvironmentFile .\worker.env

.EXAMPLE
.\worker.ps1 -Action Stop
#>
#Requires -Version 5.1
#Requires -RunAsAdministrator
[CmdletBinding()]
param(
    [Parameter(Mandatory)]
    [ValidateSet('Install', 'Start', 'Stop', 'Status', 'Remove')]
    [string] $Action,

    # The interpreter of the environment in which modelmill is installed.
    [string] $Python,

    # NAME=value lines: PREFECT_API_URL, PREFECT_API_AUTH_STRING, MODELMILL_STATE, ...
    [string] $EnvironmentFile,

    # Home, log and a copy of the environment file; for administrators and the account only.
    [string] $Folder = (Join-Path $env:ProgramData 'modelmill'),

    # Without a password: a built-in service account or a group managed one (DOMAIN\name$).
    [string] $Account = 'NT AUTHORITY\LOCAL SERVICE',

    [string] $TaskName = 'modelmill worker',

    [ValidateRange(1, 1440)]
    [int] $DrainMinutes = 30
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$stopFile = Join-Path $Folder 'stop'
$secrets = Join-Path $Folder 'worker.env'

function Install-Worker {
    foreach ($file in $Python, $EnvironmentFile) {
        if (-not $file -or -not (Test-Path -LiteralPath $file -PathType Leaf)) {
            throw "-Python and -EnvironmentFile must name files; '$file' is none"
        }
    }
    $null = New-Item -ItemType Directory -Path $Folder -Force
    # Closed before the secrets are in it.
    & icacls.exe $Folder /inheritance:r /grant:r '*S-1-5-32-544:(OI)(CI)F' '*S-1-5-18:(OI)(CI)F' "${Account}:(OI)(CI)M"
    if ($LASTEXITCODE -ne 0) { throw "the access to $Folder could not be set" }
    Copy-Item -LiteralPath $EnvironmentFile -Destination $secrets -Force

    $log = Join-Path $Folder 'worker.log'
    $homeFolder = Join-Path $Folder 'home'
    $arguments = "-m deploy.service --env-file `"$secrets`" --stop-file `"$stopFile`" --log `"$log`"" +
        " worker --home `"$homeFolder`" --drain-limit ${DrainMinutes}m"
    $what = New-ScheduledTaskAction -Execute (Resolve-Path -LiteralPath $Python).Path -Argument $arguments -WorkingDirectory $Folder
    # The second one starts it again within five minutes, whatever its end was: the task's own
    # restart does not look at exit codes.
    $when = @(
        New-ScheduledTaskTrigger -AtStartup
        New-ScheduledTaskTrigger -Once -At (Get-Date) -RepetitionInterval (New-TimeSpan -Minutes 5)
    )
    $kind = if ($Account -like 'NT AUTHORITY\*') { 'ServiceAccount' } else { 'Password' }
    $who = New-ScheduledTaskPrincipal -UserId $Account -LogonType $kind -RunLevel Limited
    # Tasks run below normal priority and for three days unless told otherwise.
    $how = New-ScheduledTaskSettingsSet -MultipleInstances IgnoreNew -ExecutionTimeLimit ([TimeSpan]::Zero) -Priority 5 -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries -StartWhenAvailable
    $null = Register-ScheduledTask -TaskName $TaskName -Action $what -Trigger $when -Principal $who -Settings $how -Force
    Start-Worker
}

function Start-Worker {
    Remove-Item -LiteralPath $stopFile -Force -ErrorAction SilentlyContinue
    $null = Enable-ScheduledTask -TaskName $TaskName
    Start-ScheduledTask -TaskName $TaskName
}

function Stop-Worker {
    # Disabled, so that the trigger does not start it again; that leaves a running one alone.
    $null = Disable-ScheduledTask -TaskName $TaskName
    $null = New-Item -ItemType File -Path $stopFile -Force
    $deadline = (Get-Date).AddMinutes($DrainMinutes + 2)
    while ((Test-Running) -and (Get-Date) -lt $deadline) { Start-Sleep -Seconds 1 }
    if (Test-Running) {
        Stop-ScheduledTask -TaskName $TaskName
        throw "the worker did not end in time and was killed; its leases end by themselves"
    }
    Remove-Item -LiteralPath $stopFile -Force -ErrorAction SilentlyContinue
}

function Test-Running {
    # Running instances: the state of the task itself is 'Disabled' by now.
    $service = New-Object -ComObject Schedule.Service
    $service.Connect()
    $instances = $service.GetFolder('\').GetTask($TaskName).GetInstances(0)
    return $instances.Count -gt 0
}

function Show-Worker {
    Get-ScheduledTask -TaskName $TaskName | Get-ScheduledTaskInfo
    Get-Content -LiteralPath (Join-Path $Folder 'worker.log') -Tail 20 -ErrorAction SilentlyContinue
}

switch ($Action) {
    'Install' { Install-Worker }
    'Start' { Start-Worker }
    'Stop' { Stop-Worker }
    'Status' { Show-Worker }
    'Remove' {
        Stop-Worker
        Unregister-ScheduledTask -TaskName $TaskName -Confirm:$false
    }
}
